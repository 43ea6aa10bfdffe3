// The answer of `farside plan`: a program runs once, with all of its memory near and samples of its pages made far
// (samples.h). What its processes would fetch with less, times what a fetch costs, is what they would lose.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_settings.h"
#include "tools/plan/prices.h"
#include "tools/plan/samples.h"

namespace farside::plan {

struct OneRunSettings {
  double slowdown = 0.1;  // accepted; 0.1: 10 %
  double seconds = 0;     // after which the program gets SIGTERM, or -p ends; 0: it ends by itself
  std::string load;       // a command of the shell; when it ends, the program gets SIGTERM. "": none
};

// Returns
//
//   {"complete": false where a signal ended it early, "program", "settings", "machine", "seconds", "processes",
//   "rounds", "heap_bytes": of the largest process,
//    "prices_us": by event, "points": [{"near_bytes", "fetches", "fetches_error", "in_streams", "slowdown", "low",
//    "high"}], "keep": {"bytes", "low", "high"}, or null where no size below the heap's is enough}
// with points from the smallest size to the largest. ENODATA: the run was too short to be sampled. The caller has no
// threads.
Result<nlohmann::json> plan_one_run(const OneRunSettings& settings, const cli::RunSettings& run,
                                    const std::string& path, const std::vector<std::string>& program);

// The rest of that document, from the samples of processes; program, complete and the like are the caller's. Prices are
// those of the run's link. over_network: where a server is started to measure them, over tcp.
Result<nlohmann::json> plan_from(const std::vector<Samples>& processes, bool over_network,
                                 const OneRunSettings& settings, const cli::RunSettings& run, const SignalHold& hold);

// Adds "checked": what measure_plan() measured beside what was computed.
void check_one_run(const nlohmann::json& measured, nlohmann::json* document);

// The points and the answer, from the samples of the processes.
nlohmann::json outlook_of(const std::vector<Samples>& processes, const FarsidePrices& prices, double slowdown);

}  // namespace farside::plan
