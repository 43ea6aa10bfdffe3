// The compared configurations of memory: native, far memory, kernel swap. Each function runs in its own process
// (run_in_child) and returns the values of one repetition.
#pragma once
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "measure/far_memory.h"
#include "measure/statistics.h"
#include "measure/swap.h"

namespace farside {

struct AccessSettings {
  uint64_t bytes = 0;          // of data
  double local = 0;            // share of it that may be near
  uint64_t accesses = 200000;  // per thread, in one measurement
  double seconds = 3;          // after which a measurement ends in any case
  std::vector<unsigned> threads = {1, 2};
  std::vector<Workload> workloads = {std::begin(kWorkloads), std::end(kWorkloads)};
  bool hinted = false;  // each access to far memory
};

// {"cells": [{"workload", "threads", "us", "per_s", "counters"}], "miss": {"share", "median_us", "p99_us", "p999_us"}}:
// all workloads with each number of threads, and the latency of random reads that miss. "miss" is null if there were
// none, or if random reads are not the first workload.
Result<nlohmann::json> measure_far(const AccessSettings& settings, const FarMemoryConfig& far);
// The same, and then what else `more` measures there and adds.
using MeasureMore = std::function<void(FarMemory&, nlohmann::json*)>;
Result<nlohmann::json> measure_far(const AccessSettings& settings, const FarMemoryConfig& far, const MeasureMore& more);
Result<nlohmann::json> measure_memory(const AccessSettings& settings, std::byte* memory);      // of settings.bytes
Result<nlohmann::json> measure_plain(const AccessSettings& settings, const KernelSwap* swap);  // nullptr: native

// {"us"}: the median of 4 KiB reads that are submitted and polled on one channel, without a pager.
Result<nlohmann::json> measure_round_trip(const FarMemoryConfig& far);

// {"ratio"}: the time of compute() over far memory that is all near, divided by its time over plain memory.
Result<nlohmann::json> measure_all_near(const AccessSettings& settings, FarMemoryConfig far);

}  // namespace farside
