// The suite of `farside bench threads`.
#pragma once
#include "bench/runner/benchmark.h"

namespace farside::bench {

Suite threads_suite();

// Of those numbers of threads, the ones for which this machine has processors.
std::vector<unsigned> with_processors(std::vector<unsigned> threads);

}  // namespace farside::bench
