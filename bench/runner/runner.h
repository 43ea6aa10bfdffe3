// Runs a benchmark: each measurement in its own process, all of them in each repetition, so that drift of the machine
// affects them alike.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/runner/benchmark.h"

namespace farside::bench {

// {"benchmark", "machine", "settings", "skipped": {what: reason}, "rows": [{"suite", ...}], "goals"}. The caller has no
// threads.
Result<nlohmann::json> run_benchmark(const Benchmark& benchmark, const Settings& settings);

}  // namespace farside::bench
