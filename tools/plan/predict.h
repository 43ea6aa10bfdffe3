// `farside plan --blocks`: predicts a program's behaviour with less near memory from one observed run, the prices of
// misses, and its native time.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/plan/observe.h"
#include "tools/plan/prices.h"

namespace farside::plan {

struct PredictSettings {
  double seconds = 60;            // limit of the observed run; 0: none
  double slowdown = 0.1;          // accepted slowdown compared with native; 0.1: 10 %
  std::vector<double> latencies;  // of other links for Farside, in us
};

// The program's runs without Farside and unobserved.
struct Native {
  std::vector<double> seconds;  // of each run
  double processors = 1;        // that it used on average, at least 1
};

// The sizes of the processor's data caches in bytes, smallest first.
std::vector<double> cache_sizes();

// The prediction:
//
//   {"native_s", "processors", "observed": {"seconds", "cut_off", "accesses", "far_accesses", "instructions",
//    "heap_bytes", "slowdown"}, "local_amat_ns", "near_events": [{"share", and each of kNearEventNames}],
//    "curves": [{"block", "rate", "points": [{"share", "misses", "ratio", "low", "high"}]}],
//    "systems": [{"name", "source", "us", "points": [{"share", "amat_ns", "slowdown", "low", "high"}],
//                 "keep": {"share", "low", "high"}; for Farside also "prices_us": [{each of kNearEventNames}]}]}
// low and high bound 95 % intervals. Shares are percentages of the heap, that is of the accessed memory. A run that was
// cut off has no "slowdown" and no "keep". A share of null under "keep" means that even all of the heap is not enough.
nlohmann::json prediction_of(const Observed& observed, const Native& native, const std::vector<FarsidePrices>& prices,
                             const std::vector<double>& caches, double slowdown);

// Runs `path` with the arguments `program` natively and observed, and measures prices. Returns the members of
// prediction_of() and "command", "program", "machine" and "settings". The caller has no threads.
Result<nlohmann::json> predict_plan(const PredictSettings& settings, const cli::RunSettings& run,
                                    const std::string& path, const std::vector<std::string>& program);

// Adds measure_plan()'s results and their comparison with the prediction: "checked": [{"share", "measured",
// "predicted", "error"}], slowdowns over the link of the run, each from the fastest runs.
void add_check(const nlohmann::json& measured, nlohmann::json* prediction);

}  // namespace farside::plan
