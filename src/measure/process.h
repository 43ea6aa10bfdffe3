// Child processes of a benchmark: each way of paging runs in a process of its own, and so does the memory server, so
// that nothing is left over from one to the next and the server's processor time is not hidden in the measured process.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "launch/child.h"
#include "launch/embedded_server.h"

namespace farside {

// Runs `work` in a forked child and returns what it made. The caller must have no threads. Fails with EINTR when a
// signal asks to stop meanwhile; the child is then gone.
Result<nlohmann::json> run_in_child(const SignalHold& hold, const std::function<Result<nlohmann::json>()>& work);

// A memory server in a child process, reached over both transports.
class ServerProcess {
 public:
  // Without a token it makes one up.
  static Result<std::unique_ptr<ServerProcess>> start(const SignalHold& hold, uint64_t memory,
                                                      const std::string& token = "");
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& shm() const { return shm_; }
  const std::string& tcp() const { return tcp_; }
  const std::string& token() const { return token_; }

 private:
  ServerProcess() = default;
  std::unique_ptr<PrivateDirectory> directory_;
  std::string shm_, tcp_, token_;
  pid_t pid_ = -1;
};

}  // namespace farside
