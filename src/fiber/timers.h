// Sleeping fibers, ordered by deadline; fibers with the same deadline in the order of their calls. A pairing heap
// (docs/references.md) that is linked through the fibers, so nothing is allocated. Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>

#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"

namespace farside::fibers {

class Timers {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  // Adds a fiber whose deadline is set. True: it is the earliest now.
  bool insert(Fiber* fiber);
  // Removes and returns a fiber whose deadline has passed, or nullptr.
  Fiber* take_due(uint64_t now);
  uint64_t earliest() const { return earliest_.load(); }

 private:
  FiberLock lock_;  // earliest_ is written under it
  Fiber* root_ GUARDED_BY(lock_) = nullptr;
  uint64_t turns_ GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> earliest_{kNever};
};

}  // namespace farside::fibers
