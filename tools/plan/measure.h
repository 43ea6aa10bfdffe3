// The measurements of `farside plan`: a program native, and over far memory at each share of near memory.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_settings.h"

namespace farside::plan {

struct PlanSettings {
  std::vector<unsigned> shares;   // percent of the heap that may be near
  double heap_bytes = 0;          // of this heap; 0: of its largest size so far
  std::vector<double> latencies;  // of other links, in us
  unsigned repetitions = 1;
  double slowdown = 0.1;  // accepted slowdown compared with native; 0.1: 10 %
};

// Runs `path` with the arguments `program`. Returns
//
//   {"program", "settings", "machine", "transport", "round_trip_us", "native_s": summary,
//    "points": [{"share", "fetches": of the busiest thread, "seconds": summary, "costs"}],
//    "complete": false where a signal ended it early}
// with points from the smallest share to the largest: those that were measured. An error if none was. The caller has no
// threads.
Result<nlohmann::json> measure_plan(const PlanSettings& settings, const cli::RunSettings& run, const std::string& path,
                                    const std::vector<std::string>& program);

}  // namespace farside::plan
