// What `farside bench paging` measures, apart from how it is shown (paging_report.h).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/configurations.h"
#include "report/statistics.h"

namespace farside::bench {

struct PagingSettings : AccessSettings {
  unsigned repetitions = 3;
  unsigned evictors = 1;
  bool zram = true;
  std::vector<std::string> configurations;  // to run; empty: all
  bool quiet = false;
};

// Runs every way of paging in turn, `repetitions` times, and puts the medians into one document; its parts are named in
// docs/benchmarks.md. A way that cannot run here is left out, with the reason under "skipped".
Result<nlohmann::json> measure_paging(const PagingSettings& settings);

// The names that PagingSettings::ways may hold.
std::vector<std::string> paging_configurations();

// The goals of the project that the document can answer.
std::vector<Goal> paging_goals(const nlohmann::json& document);

}  // namespace farside::bench
