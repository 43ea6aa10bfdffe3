// `farside bench scaling`: simulates the pager on machines with more cores than this one. The simulation takes costs
// measured on this machine, is validated against measurements on this machine, and is then run with published costs of
// a large machine.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/scaling/costs.h"
#include "bench/scaling/model.h"
#include "measure/chart.h"

namespace farside::bench::scaling {

struct ScalingSettings {
  std::vector<unsigned> threads = {1, 8, 16, 24, 32, 48, 64, 96, 128};
  std::vector<unsigned> evictors = {1, 2, 4, 8};
  std::vector<unsigned> batches = {16, 32, 64, 128, 256, 512};
  uint64_t faults = 30000;  // measured in each simulation
  uint64_t seed = 1;
  bool quiet = false;
};

// A change of the design, and its name.
struct Change {
  const char* name;
  void (*apply)(Design& design);
};
const std::vector<Change>& changes();

// {"settings", "costs", "validation", "threads", "batches", "breakdown", "changes", "sensitivity", "others", "tiers"},
// described in docs/internals/scaling.md.
nlohmann::json predict(const Costs& costs, const ScalingSettings& settings);

std::string scaling_text(const nlohmann::json& document);

// File names and contents (SVG).
std::vector<std::pair<std::string, std::string>> scaling_plots(const nlohmann::json& document);

}  // namespace farside::bench::scaling
