// The measurements of `farside bench paging`: one word on each page, read and written, at random and in order. The text
// and the chart are made in paging_report.h.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/configurations.h"
#include "measure/statistics.h"

namespace farside::bench {

struct PagingSettings : AccessSettings {
  unsigned repetitions = 3;
  unsigned evictors = 1;
  bool zram = true;
  std::vector<std::string> configurations;  // to run; empty: all
  bool quiet = false;
};

// Runs every configuration in turn, each in its own process, `repetitions` times. Returns the medians in one document,
// whose members docs/benchmarks.md describes. A configuration that cannot run on this machine is left out; the reason
// is in "skipped". The caller has no threads.
Result<nlohmann::json> measure_paging(const PagingSettings& settings);

// The names that PagingSettings::configurations accepts.
std::vector<std::string> paging_configurations();

// The goals that the document has values for.
std::vector<Goal> paging_goals(const nlohmann::json& document);

}  // namespace farside::bench
