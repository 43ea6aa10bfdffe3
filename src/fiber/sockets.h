// Fibers that wait for descriptors: one epoll set for each run. A descriptor is armed again for every wait (one-shot,
// level-triggered), so no event is lost and nothing is kept about descriptors between waits: they may be closed, and
// their numbers reused, by calls that this library does not see. Thread-safe; not async-signal-safe.
#pragma once
#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"

namespace farside::fibers {

struct SocketEvents {
  static constexpr int kMax = 64;
  int count = 0;
  epoll_event events[kMax];
};

class Sockets {
 public:
  // make_ready: called for each fiber whose wait has ended.
  explicit Sockets(void (*make_ready)(Fiber*)) : make_ready_(make_ready) {}

  // 0 or -errno.
  int open();
  void close();

  // Adds a fiber that waits until its descriptor has one of its events. Its result becomes 0 or -errno. Called by the
  // loop, off the fiber's stack. False: the descriptor cannot be waited for, and the fiber is ready.
  bool add(Fiber* fiber);
  // Makes all fibers ready that wait for the descriptor, with this result.
  void wake_waiters(int fd, int result);
  // Waits for events, at most timeout_ns; one caller at a time.
  void wait(SocketEvents* events, uint64_t timeout_ns);
  void handle(const SocketEvents& events);
  // Ends the current call of wait(), or the next one.
  void interrupt();

  size_t waiters() const { return waiters_.load(); }

 private:
  static constexpr int kBuckets = 64;
  // The waiters of the descriptors with one remainder. The lock is held during the epoll_ctl that arms a descriptor:
  // otherwise the older of two calls could be the last to take effect.
  struct Bucket {
    FiberLock lock;
    FiberList waiting GUARDED_BY(lock);
  };

  Bucket& bucket_of(int fd) { return buckets_[static_cast<unsigned>(fd) % kBuckets]; }
  int arm(Bucket& bucket, int fd) REQUIRES(bucket.lock);
  void dispatch(int fd, uint32_t events);
  void wake_all(FiberList* fibers, int result);

  void (*const make_ready_)(Fiber*);
  int epoll_ = -1;
  int wakeup_ = -1;  // an eventfd, for interrupt()
  std::atomic<size_t> waiters_{0};
  Bucket buckets_[kBuckets];
};

}  // namespace farside::fibers
