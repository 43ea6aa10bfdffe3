// `farside bench writeback`: evicts pages in which some lines were changed, as whole pages or by lines, over a link
// with limited bandwidth and over tcp (Kona, figure 11). Goodput is the changed bytes written per second of eviction:
// all data is made near and changed before the budget is lowered and the clock started.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/child.h"
#include "measure/chart.h"

namespace farside::bench {

struct WritebackSettings {
  uint64_t bytes = 0;  // of data
  double local = 0;    // not used: the benchmark sets the budget itself
  unsigned evictors = 1;
  unsigned repetitions = 3;
  bool quiet = false;
};

// {"machine", "settings", "goals", "rows": [{"link", "mode", "pattern", "lines", figures}]}. The caller has no threads.
Result<nlohmann::json> measure_writeback(const WritebackSettings& settings);
std::string writeback_text(const nlohmann::json& document);
std::vector<LineChart> writeback_charts(const nlohmann::json& document);

}  // namespace farside::bench
