// The lock of the library's structures: a spin lock whose waiters poll for the fibers of their worker. Without the
// polling three threads of control could wait in a circle: the holder is interrupted by a signal handler that touches a
// far page; the page is being fetched for a fiber of the waiter's worker; and the waiter spins for the holder.
#pragma once
#include "base/sync.h"

namespace farside::fibers {

// Lock order: one primitive's lock (a condition's before its mutex's), then a run queue's. In
// docs/internals/locking.md.
class CAPABILITY("lock") FiberLock {
 public:
  void lock() ACQUIRE() {
    if (!lock_.try_lock()) lock_contended();
  }
  bool try_lock() TRY_ACQUIRE(true) { return lock_.try_lock(); }
  void unlock() RELEASE() { lock_.unlock(); }

 private:
  void lock_contended() ACQUIRE(lock_);  // in worker.cc
  SpinLock lock_;
};

}  // namespace farside::fibers
