// `farside plan --predict`: how a program would run with less memory near, from one observed run of it, prices of
// misses and its native time.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/plan/observe.h"
#include "cli/plan/prices.h"

namespace farside::cli::plan {

struct PredictSettings {
  double seconds = 60;            // that the observed run may take; 0: any time
  double slowdown = 0.1;          // against native, that the user would accept
  std::vector<double> latencies;  // of other links for Farside, in microseconds
};

// How the program runs without Farside and unobserved.
struct Native {
  std::vector<double> seconds;  // of each run
  double processors = 1;        // that it kept busy on average, at least 1
};

// Sizes of the processor's caches for data, from the smallest on, in bytes.
std::vector<double> cache_sizes();

// What follows from it all:
//   {"native_s", "processors", "observed": {"seconds", "cut_off", "accesses", "far_accesses", "instructions",
//    "heap_bytes", "slowdown"}, "local_amat_ns", "near_events": [{"share", and each of
//    kNearEventNames}], "curves": [{"block", "rate", "points": [{"share", "misses", "ratio", "low", "high"}]}],
//    "systems": [{"name", "source", "us", "points": [{"share", "amat_ns", "slowdown", "low", "high"}],
//                 "keep": {"share", "low", "high"}; of Farside, "prices_us": for each of kNearEventNames}]}
// low and high bound 95 % intervals. Shares are percent of the heap, which is what the program touched. Of a run that
// was cut off there is no slowdown, and nothing to keep; a share of null under "keep" means that not even all of it is
// enough.
nlohmann::json prediction_of(const Observed& observed, const Native& native, const std::vector<FarsidePrices>& prices,
                             const std::vector<double>& caches, double slowdown);

// Runs `path` with the arguments `program` natively and observed, and measures prices. Beside prediction_of's members
// "command", "program", "machine" and "settings".
Result<nlohmann::json> predict_plan(const PredictSettings& settings, const RunSettings& run, const std::string& path,
                                    const std::vector<std::string>& program);

// What measure_plan() found, beside what was predicted: "checked": [{"share", "measured", "predicted", "error"}], of
// slowdowns over the link of the run, against native runs of the
// same time, the fastest of each.
void add_check(const nlohmann::json& measured, nlohmann::json* prediction);

}  // namespace farside::cli::plan
