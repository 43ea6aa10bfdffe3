#include "server/call_threads.h"

#include <poll.h>

#include <utility>

#include "base/clock.h"
#include "base/core_sharing.h"

namespace farside::server {
namespace {

constexpr int kStopCheckMs = 200;
constexpr uint64_t kPollNs = 200'000;    // of polling after the last request, as in serving_thread.cc
constexpr uint64_t kLongYieldUs = 1000;  // after a yield this long, the thread sleeps instead of polling

void serve(Connection& connection, const CallService& service) {
  connection.begin_calls();
  CoreSharing core(kLongYieldUs);
  for (uint64_t last = now_ns(); !connection.is_over() && !service.is_stopping();) {
    pollfd fd = {
        connection.fd(),
        static_cast<short>((connection.wants_input() ? POLLIN : 0) | (connection.wants_output() ? POLLOUT : 0)), 0};
    bool polling = now_ns() - last < kPollNs && !core.is_crowded();
    if (poll(&fd, 1, polling ? 0 : kStopCheckMs) <= 0) {
      if (polling) core.yield();  // the client may need this core for its next request
      continue;
    }
    if (fd.revents & POLLOUT) connection.send();
    bool progress = connection.receive();
    while (connection.is_unfinished()) connection.go_on();
    if (!progress && (fd.revents & (POLLHUP | POLLERR))) return;
    while (connection.wants_host() && !connection.wants_output() && !connection.is_over()) connection.give_to_host();
    last = now_ns();
  }
}

}  // namespace

bool CallThreads::adopt(std::unique_ptr<Connection>* connection) {
  LockGuard hold(mutex_);
  join_ended();
  if (service_->is_stopping() || threads_.size() >= service_->config().max_connections) return false;
  ConnectionThread& own = threads_.emplace_back();
  std::shared_ptr<Connection> adopted = std::move(*connection);
  own.thread = std::thread([this, &own, adopted]() mutable {
    serve(*adopted, *service_);
    adopted.reset();
    own.ended = true;
  });
  return true;
}

void CallThreads::join_ended() {
  threads_.remove_if([](ConnectionThread& t) {
    if (!t.ended) return false;
    t.thread.join();
    return true;
  });
}

void CallThreads::stop() {
  service_->stop();
  std::list<ConnectionThread> all;
  {
    LockGuard hold(mutex_);
    all.swap(threads_);
  }
  for (ConnectionThread& t : all) t.thread.join();
}

}  // namespace farside::server
