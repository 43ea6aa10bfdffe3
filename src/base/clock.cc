#include "base/clock.h"

#include <time.h>

namespace farside {

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

double ticks_per_us() {
  static const double rate = [] {
    uint64_t ns = now_ns(), start = ticks();
    while (now_ns() - ns < 2000000) cpu_relax();
    uint64_t end = ticks();
    return static_cast<double>(end - start) * 1000.0 / static_cast<double>(now_ns() - ns);
  }();
  return rate;
}

}  // namespace farside
