// Measures the inputs of the simulation, and the results it is validated with, on this machine: the phases of faults
// and evictions by the pager's counters, in the workloads of `bench paging` over shared memory; the cost of moving a
// cache line, of a TLB shootdown, of a wake-up and of a 2 MiB frame; the parts of requests over tcp and to a file.
#pragma once
#include <memory>

#include "bench/scaling/costs.h"
#include "measure/configurations.h"
#include "measure/process.h"

namespace farside::bench::scaling {

class Calibration {
 public:
  // paging: what is measured with one thread and with two, on one core and, where there are two, on two. The caller has
  // no threads.
  Calibration(const AccessSettings& paging, const std::string& folder, const SignalHold& hold);
  ~Calibration();

  // One repetition.
  Result<nlohmann::json> measure();
  void add(const nlohmann::json& repetition);
  // Of the best of the repetitions, because other activity of the machine only adds time.
  Costs costs() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// The costs of one workload, from a cell of measure_far() with one thread and the time of an access without a fault.
WorkloadCosts costs_of_cell(const nlohmann::json& cell, double access_us, double shootdown_us);

}  // namespace farside::bench::scaling
