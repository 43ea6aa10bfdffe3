// Child processes of a benchmark. Each configuration runs in its own process, so that no state carries over to the
// next. So does the memory server, so that its CPU time is not counted in the measured process.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "launch/child.h"
#include "launch/embedded_server.h"
#include "ucx/helper.h"

namespace farside {

// Runs `work` in a forked child and returns its result. EINTR if a stop signal arrives; the child has then been killed.
// The caller has no threads.
Result<nlohmann::json> run_in_child(const SignalHold& hold, const std::function<Result<nlohmann::json>()>& work);

// A memory server in a child process, reachable over both transports. It is stopped with the object.
class ServerProcess {
 public:
  // With an empty token it generates one. `memory` is its capacity in bytes. With the path of the program that executes
  // functions of clients, the server executes them.
  static Result<std::unique_ptr<ServerProcess>> start(const SignalHold& hold, uint64_t memory,
                                                      const std::string& token = "", const ucx::Settings& ucx = {},
                                                      const std::string& offload_host = "", unsigned threads = 1);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& shm() const { return shm_; }
  const std::string& tcp() const { return tcp_; }
  std::string ucx() const { return "ucx" + tcp_.substr(3); }
  const std::string& token() const { return token_; }
  uint64_t cpu_ns() const;  // processor time used so far

 private:
  ServerProcess() = default;
  std::unique_ptr<PrivateDirectory> directory_;
  std::string shm_, tcp_, token_;
  pid_t pid_ = -1;
};

}  // namespace farside
