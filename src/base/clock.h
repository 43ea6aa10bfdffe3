// Time. ticks() is the cheapest monotonic counter of the machine (the time stamp counter on x86-64), for measuring
// short intervals; now_ns() is CLOCK_MONOTONIC in nanoseconds. Both are thread-safe and async-signal-safe, and make no
// system call where the vDSO provides the clock.
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

// Ticks per microsecond. Measured for 2 ms at the first call, which must not happen during a fault, unless it was set
// before. Thread-safe.
double ticks_per_us();
// What another process of this machine has measured; 0: nothing. Async-signal-safe.
void set_ticks_per_us(double rate);

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace farside
