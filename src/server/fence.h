// Keeps requests of a connection that was replaced from being carried out. A client whose connection broke, or seems to
// have, opens another one of the same channel with the next generation and repeats there what was not answered. What
// the old connection still has in its buffers must then never overwrite what comes after.
//
// Every session of the channel carries out its requests inside enter(), and a new one is greeted after advance(). So
// once a client has seen the greeting, the old session's requests were carried out before, or never will be.
#pragma once
#include <cstdint>
#include <mutex>

namespace farside::server {

class Fence {
 public:
  // Shuts out all older generations; waits for a request of theirs that is being carried out. False: there is a newer
  // one already.
  bool advance(uint64_t generation) {
    std::lock_guard hold(mutex_);
    if (generation < generation_) return false;
    generation_ = generation;
    return true;
  }

  // While the lock is held no newer generation is let in. Owns no lock where this one is shut out.
  std::unique_lock<std::mutex> enter(uint64_t generation) {
    std::unique_lock hold(mutex_);
    if (generation < generation_) hold.unlock();
    return hold;
  }

 private:
  std::mutex mutex_;  // guards generation_; taken before the pool's mutex
  uint64_t generation_ = 0;
};

}  // namespace farside::server
