// What `farside bench policies` does: simulates which pages would be near, for each policy, on synthetic traces.
// Nothing is timed and nothing is paged; the same seed gives the same figures on every machine.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/chart.h"

namespace farside::bench {

struct PoliciesSettings {
  unsigned pages = 8192;
  unsigned accesses = 400000;
  unsigned seed = 1;
  std::vector<unsigned> shares = {10, 25, 50, 75, 90};  // percent of the pages that may be near
  bool quiet = false;
};

// {"settings", "traces": [{"name", "curves": [{"policy", "points": [{"near", "hits", "soft_faults", "shm_us",
// "tcp_us"}]}]}]}: hits and soft faults in percent of the accesses, costs in us an access.
nlohmann::json measure_policies(const PoliciesSettings& settings);

std::string policies_text(const nlohmann::json& document);
// Miss-ratio curves, a panel for each trace.
std::vector<LineChart> policies_charts(const nlohmann::json& document);

}  // namespace farside::bench
