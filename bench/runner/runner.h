// Runs a benchmark: each measurement in its own process, all of them in each repetition, so that drift of the machine
// affects them alike.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/runner/benchmark.h"

namespace farside::bench {

// {"benchmark", "machine", "settings", "variables", "skipped": {what: reason}, "problems": [text], "rows": [{"suite",
// ...}], "goals"}. A run that was stopped is continued from its journal, which the caller deletes when it has the
// result. The caller has no threads.
Result<nlohmann::json> run_benchmark(const Benchmark& benchmark, const Settings& settings);

// JSON.NAME.part; "" without a file for the results.
std::string journal_path(const Benchmark& benchmark, const Settings& settings);

}  // namespace farside::bench
