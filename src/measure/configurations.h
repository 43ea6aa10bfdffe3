// The ways of paging that are compared. Each function runs in a process of its own and returns one repetition's
// figures.
#pragma once
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "measure/far_memory.h"
#include "measure/swap.h"
#include "report/statistics.h"

namespace farside {

struct AccessSettings {
  uint64_t bytes = 0;          // of data
  double local = 0;            // share of it that may be near
  uint64_t accesses = 200000;  // of each thread, in one measurement
  double seconds = 3;          // in which a measurement ends anyway
};

// {"cells": [{"workload", "threads", "us", "counters"}], "miss": {...}}
Result<nlohmann::json> measure_far(const AccessSettings& settings, const FarMemoryConfig& far);
Result<nlohmann::json> measure_plain(const AccessSettings& settings, const KernelSwap* swap);  // nullptr: none

// {"us"}: median of 4 KiB reads, submitted and polled on a channel of its own.
Result<nlohmann::json> measure_round_trip(const FarMemoryConfig& far);

// {"ratio"}: time over far memory that is all near, divided by time over plain memory.
Result<nlohmann::json> measure_all_near(const AccessSettings& settings, FarMemoryConfig far);

}  // namespace farside
