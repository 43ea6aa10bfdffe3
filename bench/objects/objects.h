// What `farside bench objects` measures: pointers to far objects beside ordinary pointers, paging, and kernel swap.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "report/chart.h"

namespace farside::bench {

struct ObjectsSettings {
  uint64_t bytes = 0;          // of data
  double local = 0;            // share of it that may be near
  uint64_t accesses = 200000;  // in one measurement
  unsigned repetitions = 3;
  bool zram = true;                 // beside kernel swap, where there is zram
  std::vector<std::string> suites;  // of objects_parts(); empty: all
  bool quiet = false;
};

std::vector<std::string> objects_suites();
// {"machine", "settings", "skipped", "rows": [{"part", ..., figure: summary}], "goals"}
Result<nlohmann::json> measure_objects(const ObjectsSettings& settings);
std::string objects_text(const nlohmann::json& document);
std::vector<LineChart> objects_charts(const nlohmann::json& document);

}  // namespace farside::bench
