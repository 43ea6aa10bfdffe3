// The threads of connections for calls: such a connection leaves the thread that serves many, since its requests wait
// for the ends of processes. Thread-safe.
#pragma once
#include <atomic>
#include <list>
#include <memory>
#include <thread>

#include "base/sync.h"
#include "server/connection.h"

namespace farside::server {

class CallThreads {
 public:
  explicit CallThreads(CallService* service) : service_(service) {}
  ~CallThreads() { stop(); }

  // Serves the connection in a thread of its own. False: there are too many, and it stays with the caller.
  bool adopt(std::unique_ptr<Connection>* connection);
  // Ends all calls and threads; may be called twice.
  void stop();

 private:
  struct ConnectionThread {
    std::thread thread;
    std::atomic<bool> ended{false};
  };
  void join_ended() REQUIRES(mutex_);

  CallService* const service_;
  Mutex mutex_;
  std::list<ConnectionThread> threads_ GUARDED_BY(mutex_);
};

}  // namespace farside::server
