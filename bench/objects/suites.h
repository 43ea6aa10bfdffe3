// The suites of `farside bench objects`: pointers to far objects beside ordinary pointers, paging and kernel swap. One
// file for each.
#pragma once
#include "bench/runner/benchmark.h"

namespace farside::bench::objects_bench {

Suite near_suite();
Suite misses_suite();
Suite fibers_suite();
Suite paths_suite();
Suite map_suite();
Suite free_memory_suite();
Suite pauses_suite();
Suite eviction_suite();
Suite near_apps_suite();

}  // namespace farside::bench::objects_bench
