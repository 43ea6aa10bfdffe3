#include "base/clock.h"

#include <time.h>

#include <atomic>

namespace farside {
namespace {

std::atomic<double> g_rate{0};

}  // namespace

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// Measured at the first call. Two threads that call at the same time both measure: no lock, since one of them may be a
// thread that libc does not know (service_thread.h).
double ticks_per_us() {
  if (double known = g_rate.load(std::memory_order_relaxed); known > 0) return known;
  uint64_t ns = now_ns(), start = ticks();
  while (now_ns() - ns < 2000000) cpu_relax();
  uint64_t end = ticks();
  double measured = static_cast<double>(end - start) * 1000.0 / static_cast<double>(now_ns() - ns);
  g_rate.store(measured, std::memory_order_relaxed);
  return measured;
}

void set_ticks_per_us(double rate) { g_rate.store(rate, std::memory_order_relaxed); }

}  // namespace farside
