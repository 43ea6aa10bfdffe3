// Time. ticks() is the cheapest monotonic counter of the machine (the time stamp counter on x86-64) for breakdown
// counters; now_ns() is wall-clock-rate monotonic time. Both are async-signal-safe and make no system call on usual
// kernels.
#pragma once
#include <cstdint>

namespace farside {

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  uint64_t v;
  asm volatile("mrs %0, cntvct_el0" : "=r"(v));
  return v;
#endif
}

uint64_t now_ns();

// Ticks per microsecond, measured over about a millisecond at first use. Not for use under a fault.
double ticks_per_us();

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace farside
