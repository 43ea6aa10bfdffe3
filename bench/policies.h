// `farside bench policies`: simulates, on synthetic or recorded traces, which pages each policy keeps near. Nothing is
// timed or paged; the same seed gives the same results on every machine.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/chart.h"

namespace farside::bench {

struct PoliciesSettings {
  unsigned pages = 8192;
  unsigned accesses = 400000;
  unsigned seed = 1;
  std::vector<unsigned> shares = {10, 25, 50, 75, 90};  // percent of the pages that may be near
  std::vector<std::string> traces;  // files that `farside plan --record` has written, instead of synthetic traces
  bool quiet = false;
};

// {"settings", "traces": [{"name", "pages", "curves": [{"policy", "points": [{"near", "hits", "soft_faults", "fetches",
// "shm_us", "tcp_us"}]}]}]}. "near" is a percentage of the pages; hits and soft faults are percentages of the accesses;
// fetches are misses that are no first accesses; costs are us per access.
Result<nlohmann::json> measure_policies(const PoliciesSettings& settings);

std::string policies_text(const nlohmann::json& document);
// Miss-ratio curves, one panel per trace.
std::vector<LineChart> policies_charts(const nlohmann::json& document);

}  // namespace farside::bench
