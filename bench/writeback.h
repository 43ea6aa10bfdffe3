// What `farside bench writeback` does: pages of which some lines were changed leave, whole or by lines, over a link
// with a bandwidth cap and over tcp (Kona, figure 11). Goodput is changed bytes a second of eviction alone: everything
// is near and changed before the budget is lowered.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/child.h"
#include "report/chart.h"

namespace farside::bench {

struct WritebackSettings {
  uint64_t bytes = 0;  // of data
  double local = 0;    // not used: all of it is near, then next to nothing
  unsigned evictors = 1;
  unsigned repetitions = 3;
  bool quiet = false;
};

// {"machine", "settings", "goals", "rows": [{"over", "mode", "pattern", "lines", figures}]}
Result<nlohmann::json> measure_writeback(const WritebackSettings& settings);
std::string writeback_text(const nlohmann::json& document);
std::vector<LineChart> writeback_charts(const nlohmann::json& document);

}  // namespace farside::bench
