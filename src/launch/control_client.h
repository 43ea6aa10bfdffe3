// Running processes as `farside ctl` sees them: found by the page that each holds (base/control.h).
#pragma once
#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "abi/control.h"
#include "base/size.h"
#include "base/status.h"

namespace farside {

class ControlledProcess {
 public:
  // nullptr: no such process, none that runs under Farside, or somebody else's.
  static std::unique_ptr<ControlledProcess> find(pid_t pid);
  // Those of the process or, where it is none itself, of its descendants: of a launcher or a shell. pid 0: all.
  static std::vector<std::unique_ptr<ControlledProcess>> find_all(pid_t pid);
  ~ControlledProcess();
  ControlledProcess(const ControlledProcess&) = delete;
  ControlledProcess& operator=(const ControlledProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Has the process tell about itself and, where `local` says something, change its near memory. It answers within a
  // tenth of a second; ETIMEDOUT after five seconds, as when it is stopped.
  Result<nlohmann::json> ask(const SizeOrShare& local);

 private:
  ControlledProcess(pid_t pid, int fd, ControlPage* page) : pid_(pid), fd_(fd), page_(page) {}
  pid_t pid_;
  int fd_;
  ControlPage* page_;
};

}  // namespace farside
