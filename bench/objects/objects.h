// `farside bench objects`: pointers to far objects compared with ordinary pointers, paging and kernel swap. One suite
// for each question; the suites are in suite.h.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/chart.h"

namespace farside::bench {

struct ObjectsSettings {
  uint64_t bytes = 0;          // of data
  double local = 0;            // share of it that may be near
  uint64_t accesses = 200000;  // in one measurement
  unsigned repetitions = 3;
  bool zram = true;                 // also measure kernel swap, if there is zram
  std::vector<std::string> suites;  // names from objects_suites(); empty: all
  bool quiet = false;
};

std::vector<std::string> objects_suites();
// {"machine", "settings", "skipped", "rows": [{"suite", ..., figure: summary}], "goals"}. The caller has no threads.
Result<nlohmann::json> measure_objects(const ObjectsSettings& settings);
std::string objects_text(const nlohmann::json& document);
std::vector<LineChart> objects_charts(const nlohmann::json& document);

}  // namespace farside::bench
