// The options of the benchmarks: one table (options.cc), of which each benchmark names the rows that it takes.
#pragma once
#include <nlohmann/json.hpp>

#include "bench/runner/benchmark.h"
#include "command/command.h"

namespace farside::bench {

// Adds to the command the options of one of the benchmarks, `benchmark`, that all of them take.
void add_options(const std::vector<const Benchmark*>& all, const Benchmark& benchmark, Command& command,
                 Settings* settings);

// Checks the settings after parsing, sets those that follow from others, and creates the files for the results.
Status settle(const Benchmark& benchmark, Settings* settings);

// The values of the benchmark's options, for its results.
nlohmann::json settings_json(const Benchmark& benchmark, const Settings& settings);

}  // namespace farside::bench
