// A TCP proxy in a process of its own that passes replies on after a fixed time, in place of a slower network. Its
// processor time counts for neither side, but it needs a core.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace farside::bench {

class DelayingProxy {
 public:
  // target: "tcp://127.0.0.1:PORT". The caller has no threads.
  static Result<std::unique_ptr<DelayingProxy>> start(const std::string& target, unsigned latency_us);
  ~DelayingProxy();
  DelayingProxy(const DelayingProxy&) = delete;
  DelayingProxy& operator=(const DelayingProxy&) = delete;

  const std::string& address() const { return address_; }

 private:
  DelayingProxy(pid_t pid, std::string address) : pid_(pid), address_(std::move(address)) {}
  const pid_t pid_;
  const std::string address_;
};

}  // namespace farside::bench
