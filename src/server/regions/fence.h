// Prevents the execution of requests of a connection that was replaced. A client whose connection broke, or seems to be
// broken, opens another one of the same channel with the next generation, and sends the requests without a reply again.
// Requests in the buffers of the old connection must not be executed after that: they could overwrite newer writes.
//
// Every connection of the channel executes its requests inside enter(), and replies to the HELLO of a new connection
// after advance(). So when the client has received that reply, a request of the old connection was executed before, or
// never will be. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>

#include "base/sync.h"

namespace farside::server {

class Fence {
 public:
  // Excludes all older generations, and waits for a request of theirs that is being executed. False: a newer generation
  // has advanced already.
  bool advance(uint64_t generation) {
    LockGuard hold(mutex_);
    if (generation < generation_) return false;
    generation_ = generation;
    return true;
  }

  // While the returned lock is held, advance() waits. It owns no lock if this generation is excluded. Not analyzed,
  // since the lock is returned.
  std::unique_lock<Mutex> enter(uint64_t generation) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock hold(mutex_);
    if (generation < generation_) hold.unlock();
    return hold;
  }

 private:
  Mutex mutex_;  // taken before the pool's mutex
  uint64_t generation_ GUARDED_BY(mutex_) = 0;
};

}  // namespace farside::server
