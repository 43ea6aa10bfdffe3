// Measures the inputs of the simulation, and the results it is validated with, on this machine: the phases of faults
// and evictions by the pager's counters, in the workloads of `bench paging` over shared memory; the cost of moving a
// cache line, of a TLB shootdown, of a wake-up and of a 2 MiB frame; the parts of requests over tcp and to a file.
#pragma once
#include "bench/scaling/costs.h"

namespace farside::bench::scaling {

struct CalibrationSettings {
  uint64_t bytes = 0;
  double local = 0.25;
  uint64_t accesses = 100000;
  double seconds = 1;
  unsigned repetitions = 3;
  std::string folder = "/tmp";  // of the far file
  bool quiet = false;
};

// Measures with one thread and with two, on one core and, where there are two, on two. Takes the best run of each,
// because other activity of the machine only adds time. The caller has no threads.
Result<Costs> measure_costs(const CalibrationSettings& settings);

// The costs of one workload, from a cell of measure_far() with one thread and the time of an access without a fault.
WorkloadCosts costs_of_cell(const nlohmann::json& cell, double access_us, double shootdown_us);

}  // namespace farside::bench::scaling
