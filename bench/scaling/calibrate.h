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

  // One repetition.
  Result<nlohmann::json> measure();
  void add(const nlohmann::json& repetition) { runs_.push_back(repetition); }
  // Of the best of the repetitions, because other activity of the machine only adds time.
  Costs costs() const;

 private:
  uint64_t near() const { return static_cast<uint64_t>(paging_.local * static_cast<double>(paging_.bytes)); }
  uint64_t bytes_of_server() const;
  Status collect(nlohmann::json* run, const std::function<Result<nlohmann::json>()>& work) const;
  Status measure_over(const std::string& address, FarMemoryConfig far, const ServerProcess* server,
                      nlohmann::json* tier) const;
  void add_tier(const std::string& name, Costs* costs) const;
  void add_tier_cell(const std::string& name, const LinkCosts& link, const nlohmann::json& cell, Costs* costs) const;
  void add_cell(size_t i, unsigned cores, Costs* costs) const;

  const AccessSettings paging_;
  const std::string folder_;  // of the far file
  const SignalHold& hold_;
  const unsigned cores_;
  std::vector<nlohmann::json> runs_;
};

// The costs of one workload, from a cell of measure_far() with one thread and the time of an access without a fault.
WorkloadCosts costs_of_cell(const nlohmann::json& cell, double access_us, double shootdown_us);

}  // namespace farside::bench::scaling
