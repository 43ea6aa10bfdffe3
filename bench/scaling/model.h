// The model of the pager's fault and eviction paths: application threads, evictors, cores, and the data that they
// share. It follows src/pager (fault_path.cc, fetch_path.cc, evictor.cc, frames.h, policy/sharded_policy.h) step by
// step. Work inside the kernel is modelled by the locks and counters that all threads of a process share there.
#pragma once
#include "bench/scaling/scenario.h"

namespace farside::bench::scaling {

Outcome simulate(const Scenario& scenario);

}  // namespace farside::bench::scaling
