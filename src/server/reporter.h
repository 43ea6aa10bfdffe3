// Reports the state of this server to a controller about once a second, from a separate thread. If the controller
// cannot be reached, the reporter retries for as long as the server runs; clients that use the server are not affected.
// The controller's replies say what an operator wants of the server; the next report repeats that.
// Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <string>
#include <thread>

#include "base/sync.h"
#include "transport/dial.h"
#include "wire/protocol.h"

namespace farside::server {

class Reporter {
 public:
  // `read` fills in the sizes and counts, and `drain` gets whether the server drains: by an operator's order, or
  // since it leaves. The reporter's thread calls them. `address` is the server's address for clients.
  Reporter(const transport::Endpoint& controller, const std::string& token, const std::string& address,
           std::function<void(wire::ServerReport*)> read, std::function<void(bool)> drain);
  ~Reporter();  // without a last report: the controller then detects that the server is silent

  // Reports that the controller accepted, and attempts that failed.
  uint64_t accepted() const { return accepted_; }
  uint64_t failed() const { return failed_; }
  bool is_cordoned() const { return order_.load() != wire::Order::kNone; }

  // Connections from now on authenticate by this one.
  void set_token(const std::string& token);
  // Reports that the server leaves, so that it gets no new slabs and programs leave it. Returns at once, before the
  // report.
  void leave();

 private:
  void run();
  bool wants_report(bool* leaving);
  void wait_for_next(bool leaving);
  int report();
  void take(const wire::RegisterReply& reply);
  transport::Dialer dialer();

  const transport::Endpoint controller_;
  transport::OwnFds fds_;
  const std::string address_;
  const std::function<void(wire::ServerReport*)> read_;
  const std::function<void(bool)> drain_;
  int fd_ = -1;
  std::atomic<uint64_t> accepted_{0}, failed_{0};
  std::atomic<wire::Order> order_{wire::Order::kNone};

  Mutex mutex_;
  std::condition_variable_any changed_;
  wire::Key key_ GUARDED_BY(mutex_);
  bool leaving_ GUARDED_BY(mutex_) = false, stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace farside::server
