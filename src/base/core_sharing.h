// Yields of polling threads, which also measure how crowded the machine is. A thread that polls for the result of
// another thread yields its core, since the other may need it. On an idle machine sched_yield returns within a
// microsecond; on a crowded one it takes a whole time slice, while a sleeping thread is scheduled as soon as it is
// woken. So after a long yield, polling threads should sleep instead for a while.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/os.h"

namespace farside {

// Thread-safe. yield() is not for use during a fault, because ticks_per_us() is not; is_crowded() is async-signal-safe.
class CoreSharing {
 public:
  explicit CoreSharing(uint64_t long_yield_us) : long_yield_us_(long_yield_us) {}

  // Yields. If that takes longer than long_yield_us, the machine counts as crowded for 50 ms.
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
