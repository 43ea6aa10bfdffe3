// The client side of the control page (abi/control.h), by which `farside ctl` and others find running processes, read
// their statistics and change their budget.
#pragma once
#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "abi/control.h"
#include "base/size.h"
#include "base/status.h"

namespace farside {

class ControlledProcess {
 public:
  // nullptr: no such process, it does not run under Farside, or this user may not access it.
  static std::unique_ptr<ControlledProcess> find(pid_t pid);
  // The process itself or, if it does not run under Farside, its descendants that do: `pid` may be a launcher or a
  // shell. pid 0: all processes of this user.
  static std::vector<std::unique_ptr<ControlledProcess>> find_all(pid_t pid);
  ~ControlledProcess();
  ControlledProcess(const ControlledProcess&) = delete;
  ControlledProcess& operator=(const ControlledProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool has_ended() const;
  // Requests a report from the process and, unless both members of `local` are 0, sets its budget. The process replies
  // within about a tenth of a second. ETIMEDOUT after five seconds, as when it is stopped.
  Result<nlohmann::json> ask(const SizeOrShare& local);

  // Without waiting: requests a report; the report that the process wrote last, none while it may be writing one. The
  // page outlives the process.
  void request();
  std::optional<nlohmann::json> latest() const;

  // Reports of all of them. Waits as long as for one.
  static std::vector<Result<nlohmann::json>> ask_all(const std::vector<std::unique_ptr<ControlledProcess>>& processes);

 private:
  static constexpr uint64_t kReplyTimeoutNs = 5'000'000'000;

  bool lock();  // false: another process has it
  void unlock();
  uint32_t send(const SizeOrShare& local);
  bool has_answered(uint32_t asked) const;
  Result<nlohmann::json> wait_for_answer(uint32_t asked, uint64_t deadline_ns);
  Result<nlohmann::json> parse_report() const;
  ControlledProcess(pid_t pid, int fd, ControlPage* page) : pid_(pid), fd_(fd), page_(page) {}
  pid_t pid_;
  int fd_;
  ControlPage* page_;
};

}  // namespace farside
