#include "bench/scaling/costs.h"

#include <algorithm>

namespace farside::bench::scaling {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkloadCosts, access, faults_per_access, pages_per_fault, dirty, signal, handle,
                                   fetch, map, select, hold, unmap, write, release)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkCosts, submit, complete, complete_page, serve, serve_page, latency, page)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MachineCosts, cores, line, siglock_hold, shootdown, wake, wake_latency, move, copy)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Measured, workload, tier, cores, threads, us)

namespace {

// Whether each number in the document is a cost.
bool are_costs(const json& document) {
  const json numbers = document.flatten();
  return std::ranges::all_of(numbers, [](const json& n) { return !n.is_number() || n >= 0; });
}

Costs read(const json& document) {
  Costs costs;
  document.at("machine").get_to(costs.here);
  costs.here.line_far = costs.here.line;
  costs.here.cores_per_socket = costs.here.cores;
  document.at("workloads").get_to(costs.workloads);
  costs.tiers = document.value("tiers", costs.tiers);
  costs.frames = document.value("frames", uint64_t{0});
  json miss = document.value("miss", json::object());
  costs.miss_median = miss.value("median_us", 0.0);
  costs.miss_p99 = miss.value("p99_us", 0.0);
  costs.measured = document.value("measured", costs.measured);
  std::erase_if(costs.measured, [&](const Measured& m) { return !costs.workloads.contains(m.workload); });
  return costs;
}

}  // namespace

json to_json(const Costs& costs) {
  return {{"machine", costs.here},
          {"workloads", costs.workloads},
          {"tiers", costs.tiers},
          {"frames", costs.frames},
          {"miss", {{"median_us", costs.miss_median}, {"p99_us", costs.miss_p99}}},
          {"measured", costs.measured}};
}

Result<Costs> parse_costs(const json& document) {
  try {
    Costs costs = read(document);
    for (const auto& [name, w] : costs.workloads) {
      if (w.faults_per_access <= 0 || w.pages_per_fault <= 0)
        return Status::error(EINVAL, "costs: {} has no faults; measure again", name);
    }
    if (are_costs(document)) return costs;
    return Status::error(EINVAL, "costs: one is below 0; measure again");
  } catch (const json::exception& error) {
    return Status::error(EINVAL, "costs: {}; measure again", error.what());
  }
}

MachineCosts large_machine(unsigned cores) {
  MachineCosts m;
  m.cores = cores;
  m.cores_per_socket = 28;
  m.line = 0.05;
  m.line_far = 0.13;
  m.shootdown = 2.6;
  m.shootdown_per_core = (27 - 2.6) / 47;  // 27 us at 48 threads
  m.wake_latency = 10;
  m.link.latency = 3.9;
  m.link.page = 4096 * 8 / 192e3;  // 192 Gbit/s in each direction
  return m;
}

WorkloadCosts over_link(WorkloadCosts w) {
  constexpr double kPost = 0.1;     // posting a request to the network card
  constexpr double kCopyOut = 0.3;  // per dirty page, from the pipe to memory that the card can read
  w.fetch = 0;                      // part of the link's costs instead
  w.handle += kPost;
  w.write = std::min(w.write, w.dirty * (kPost + kCopyOut));
  return w;
}

const WorkloadCosts& costs_over(const Costs& costs, const std::string& workload, const std::string& tier) {
  auto own = costs.workloads.find(workload + ", " + tier);
  return own != costs.workloads.end() ? own->second : costs.workloads.at(workload);
}

}  // namespace farside::bench::scaling
