// Fibers that wait for descriptors: one epoll set for the run. A descriptor is armed anew for every wait (one-shot,
// level-triggered), so no event is lost and nothing need be known of descriptors between waits: they may be closed,
// and their numbers used again, by calls that this library does not see.
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
  // 0 or -errno.
  int open();
  void close();

  // Waits until the fiber's descriptor has one of its events; its result tells how that ended: 0, or -errno.
  // For the loop, once the fiber is off its stack.
  void add(Fiber* fiber);
  // Makes all that wait for the descriptor ready, with this result.
  void wake_waiters(int fd, int result);
  // Waits for at most timeout_ns for something to happen; one caller at a time. handle makes the fibers ready.
  void wait(SocketEvents* events, uint64_t timeout_ns);
  void handle(const SocketEvents& events);
  // Ends wait(), now or when it begins.
  void interrupt();

  size_t waiters() const { return waiters_.load(); }

 private:
  static constexpr int kBuckets = 64;
  // Its lock is held over the epoll_ctl that arms what the list asks for: of two at a time, the older could come last.
  struct Bucket {
    FiberLock lock;  // guards waiting
    FiberList waiting;
  };

  Bucket& bucket_of(int fd) { return buckets_[static_cast<unsigned>(fd) % kBuckets]; }
  int arm(Bucket& bucket, int fd);
  void dispatch(int fd, uint32_t events);
  void wake_all(FiberList* fibers, int result);

  int epoll_ = -1;
  int wakeup_ = -1;  // an eventfd
  std::atomic<size_t> waiters_{0};
  Bucket buckets_[kBuckets];
};

}  // namespace farside::fibers
