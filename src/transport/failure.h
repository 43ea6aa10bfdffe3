// Why the requests to a server fail for good. A channel reports the reason before it returns the error, because a
// caller that receives the error can only end the program. Thread-safe, async-signal-safe.
#pragma once
#include <atomic>

#include "base/near.h"
#include "base/status.h"

namespace farside::transport {

class FailureReport : public NearObject {
 public:
  // Is called with the reason; it may end the process. Async-signal-safe.
  using Handler = void (*)(const Status& reason);
  explicit FailureReport(Handler handler) : handler_(handler) {}

  void report(const Status& reason) {
    keep(reason);
    if (handler_) handler_(reason);
  }
  // As report, for an error that the program survives.
  void keep(const Status& reason) {
    if (begun_.exchange(true)) return;
    first_ = reason;
    kept_.store(true, std::memory_order_release);
  }
  // The first reason; success if there is none yet.
  Status reason() const { return kept_.load(std::memory_order_acquire) ? first_ : Status(); }

  std::atomic<bool> silence_logged{false};  // that the server does not respond, for now
  std::atomic<bool> damage_logged{false};   // that a message was damaged

 private:
  const Handler handler_;
  std::atomic<bool> begun_{false}, kept_{false};
  Status first_;
};

}  // namespace farside::transport
