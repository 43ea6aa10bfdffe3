// The ways of paging that are compared. Each function runs in a process of its own and returns one repetition's
// figures.
#pragma once
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "cli/bench/far_memory.h"
#include "cli/bench/paging.h"
#include "cli/bench/swap.h"

namespace farside::cli::bench {

// {"cells": [{"workload", "threads", "us", "counters"}], "miss": {...}}
Result<nlohmann::json> measure_far(const PagingSettings& settings, const FarMemoryConfig& far);
Result<nlohmann::json> measure_plain(const PagingSettings& settings, const KernelSwap* swap);  // nullptr: none

// {"us"}: median of 4 KiB reads, submitted and polled on a channel of its own.
Result<nlohmann::json> measure_round_trip(const FarMemoryConfig& far);

// {"ratio"}: time over far memory that is all near, divided by time over plain memory.
Result<nlohmann::json> measure_all_near(const PagingSettings& settings, FarMemoryConfig far);

}  // namespace farside::cli::bench
