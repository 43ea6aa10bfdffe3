// Work on fibers, so that an application has the same number of requests in flight with each kind of types: --fibers.
#pragma once
#include <farside/fiber.hpp>

#include "app.h"

namespace farside::apps {

// The sum of what work(fiber, begin, end) returns for equal parts of [0, count), each on a fiber.
template <typename Work>
uint64_t sum_on_fibers(unsigned workers, unsigned fibers, uint64_t count, Work work) {
  std::atomic<uint64_t> sum{0};
  run_fibers(workers, [&] {
    std::vector<fiber> all;
    for (uint64_t f = 0; f < fibers; f++)
      all.emplace_back([&, f] { sum += work(f, count * f / fibers, count * (f + 1) / fibers); });
  });
  return sum;
}

}  // namespace farside::apps
