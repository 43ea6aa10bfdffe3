// A thread that serves many connections. Waking a sleeping thread costs as much as several polled round trips, so while
// requests arrive, this thread polls the most recently active connections, and sleeps only after a time without
// requests; or where threads of its own machine need the core (docs/decisions/0035). Between two pieces of long
// requests it serves the other connections once. start() and stop() are called by the server's owner; everything else
// runs in the thread.
#pragma once
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/core_sharing.h"
#include "base/status.h"
#include "server/call_threads.h"

namespace farside::server {

struct Listener {
  int fd = -1;
  bool is_unix = false;
  const tls::Credentials* tls = nullptr;  // null: plain
};

class ServingThread {
 public:
  // The listeners are shared by all serving threads, and stay open until stop() has returned.
  static Result<std::unique_ptr<ServingThread>> start(std::vector<Listener> listeners, ServerState* server,
                                                      CallThreads* calls);
  ~ServingThread() { stop(); }
  void stop();
  // Tells the clients that what they know of the server has changed. Thread-safe.
  void announce() { wake(); }

 private:
  ServingThread(std::vector<Listener> listeners, ServerState* server, CallThreads* calls);
  Status prepare();
  void wake();
  void run();
  bool shares_cores() const;
  bool poll_active();
  bool do_piece();
  bool wait(int timeout_ms);
  bool woken();
  int sleep_ms() const;
  void accept_from(const Listener& listener);
  bool make_room_for_pending();
  bool close_oldest_pending();
  void pause_accepting();
  size_t count_pending() const;
  bool needs_sweep() const;
  void add_passed(int fd);
  void add(int fd, const Listener& listener);
  void serve(Connection* connection, uint32_t events);
  void update(Connection* connection);
  void hand_over(Connection* connection);
  void make_active(Connection* connection);
  void deactivate_all();
  void close(Connection* connection);
  void close_expired();
  void listen_to(bool on);

  std::vector<Listener> listeners_;
  ServerState* const server_;
  CallThreads* const calls_;  // null: the server executes no functions
  const size_t max_pending_;
  const unsigned max_local_;  // active connections of this machine with which the thread still polls
  int epoll_ = -1, wake_event_ = -1;
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  // Used only by the thread.
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> active_;     // at most kMaxActive, most recent first
  std::deque<Connection*> unfinished_;  // that have further pieces, in the order in which they go on
  size_t pending_ = 0;   // connections that were not open when they were last counted, and new ones: they can expire
  unsigned closed_ = 0;  // connections, since memory was returned to the kernel
  uint64_t last_request_ = 0;
  CoreSharing core_;
  uint64_t last_sweep_ = 0;
  // Not 0: there were no descriptors, or too many connections without a greeting. None is accepted before this time.
  uint64_t accept_after_ns_ = 0;
};

}  // namespace farside::server
