// A thread of a relay: accepts connections at the relay's socket, and serves them until it is stopped. Like the threads
// of a server, it polls for a while before it sleeps.
#pragma once
#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/core_sharing.h"
#include "tls/link.h"

namespace farside::tls {

class RelayThread {
 public:
  // *settings and *connections, the count of the connections of all threads, outlive the thread.
  RelayThread(int listener, const RelaySettings& settings, std::atomic<size_t>* connections)
      : listener_(listener), settings_(settings), connections_(connections), core_(kLongYieldUs) {}
  ~RelayThread();
  Status start();

 private:
  static constexpr uint64_t kLongYieldUs = 1000;  // after a yield this long, the thread sleeps instead of polling

  void run();
  void accept_some();
  void listen_to(bool on);
  void serve(int fd, uint32_t events);
  void advance(const std::shared_ptr<Link>& link);
  void watch_sockets(const std::shared_ptr<Link>& link, bool had_remote);
  void remove(const std::shared_ptr<Link>& link);
  void watch_time();
  void watch(int operation, int fd, uint32_t events);
  bool polls(uint64_t now) const;
  int sleep_ms() const;

  const int listener_;
  const RelaySettings& settings_;
  std::atomic<size_t>* const connections_;
  int epoll_ = -1, stop_event_ = -1;
  std::thread thread_;

  // Used only by the thread.
  std::unordered_map<int, std::shared_ptr<Link>> links_;  // by each of their sockets
  std::vector<std::shared_ptr<Link>> unfinished_;         // to be continued without an event
  std::vector<std::shared_ptr<Link>> opening_;            // that can expire
  uint64_t last_event_ns_ = 0;
  CoreSharing core_;
  uint64_t accept_after_ns_ = 0;  // not 0: there were no descriptors; none is accepted before this time
};

}  // namespace farside::tls
