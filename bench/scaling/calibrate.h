// Measures on this machine what the simulation is fed with and checked against: the paths of the pager by its own
// counters, in the runs of `bench paging` over shared memory; what a cache line and a shootdown cost.
#pragma once
#include "bench/scaling/costs.h"

namespace farside::bench::scaling {

struct CalibrationSettings {
  uint64_t bytes = 0;
  double local = 0.25;
  uint64_t accesses = 100000;
  double seconds = 1;
  unsigned repetitions = 3;
  bool quiet = false;
};

// On one core and on two, where there are two, with one thread and with two. Of each the best run: what
// else the machine does only ever adds.
Result<Costs> measure_costs(const CalibrationSettings& settings);

// One workload's costs from a cell of measure_far with one thread, and the time of an access that needs no fault.
WorkloadCosts costs_of_cell(const nlohmann::json& cell, double access_us, double shootdown_us);

}  // namespace farside::bench::scaling
