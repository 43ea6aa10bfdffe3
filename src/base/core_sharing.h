// Yields of polling threads, and what they show about the load of the machine. A thread that polls for another one's
// work yields its core now and then. On an idle machine sched_yield returns within a microsecond; on a crowded one it
// takes a whole time slice, while a thread that sleeps is scheduled as soon as it is woken. So after a long yield a
// thread had better sleep instead of polling for a while.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/os.h"

namespace farside {

// Thread-safe. Not for use under a fault (ticks_per_us), except is_crowded(), which is async-signal-safe.
class CoreSharing {
 public:
  explicit CoreSharing(uint64_t long_yield_us) : long_yield_us_(long_yield_us) {}

  // Yields. If that takes longer than long_yield_us, the machine counts as crowded for the next 50 ms.
  void yield() {
    uint64_t before = ticks();
    os::sched_yield();
    uint64_t after = ticks();
    auto per_us = static_cast<uint64_t>(ticks_per_us());
    if (after - before > long_yield_us_ * per_us) {
      crowded_until_.store(after + kCrowdedUs * per_us, std::memory_order_relaxed);
    }
  }
  bool is_crowded() const { return ticks() < crowded_until_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kCrowdedUs = 50'000;
  const uint64_t long_yield_us_;
  std::atomic<uint64_t> crowded_until_{0};  // ticks
};

}  // namespace farside
