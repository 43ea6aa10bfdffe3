// `farside bench fibers`: random reads of far pages by 1 to 64 fibers on one worker, with and without hints, and by the
// same number of threads. While a fiber waits for its page, others run, so their reads overlap.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "launch/child.h"
#include "measure/chart.h"
#include "measure/far_memory.h"

namespace farside::bench {

struct FibersSettings {
  uint64_t bytes = 0;         // of data
  double local = 0.25;        // share that may be near
  uint64_t accesses = 60000;  // of all fibers together, in one measurement
  unsigned repetitions = 3;
  bool quiet = false;
};

// {"machine", "settings", "goals", "configurations": [{"name", "points": [{"count", "reads_per_s": summary}]}]}. The
// caller has no threads.
Result<nlohmann::json> measure_fibers(const FibersSettings& settings);
std::string fibers_text(const nlohmann::json& document);
std::vector<LineChart> fibers_charts(const nlohmann::json& document);

// Random reads a second by so many fibers on one worker, which make `accesses` together.
double time_fibers(FarMemory& far, const Arena& arena, unsigned count, uint64_t accesses, bool hinted);

}  // namespace farside::bench
