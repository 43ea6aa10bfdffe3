// What `farside bench objects` measures: pointers to far objects beside ordinary pointers, paging, and kernel swap.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/bench/chart.h"
#include "cli/bench/far_memory.h"
#include "cli/bench/process.h"

namespace farside::cli::bench {

struct ObjectsSettings {
  uint64_t bytes = 0;          // of data
  double local = 0;            // share of it that may be near
  uint64_t accesses = 200000;  // in one measurement
  unsigned repetitions = 3;
  bool zram = true;
  bool quiet = false;
};

Result<nlohmann::json> measure_objects(const ObjectsSettings& settings);
std::string objects_text(const nlohmann::json& document);
std::vector<LineChart> objects_charts(const nlohmann::json& document);

namespace objects_bench {

// An object as the measurements use it: a cache line.
struct Line {
  uint64_t words[8];
};

// ---- near.cc: everything near ----

// Time and instructions of a deref, beside raw pointers.
nlohmann::json measure_near(const ServerProcess& server);

// ---- far.cc: a share near ----

// How objects come back, forced or not: FARSIDE_PATHS.
enum class Way { kPages, kPage, kObject, kHybrid };  // kPages: a plain array, paged

struct FarRun {
  const ObjectsSettings& settings;
  const ServerProcess& server;
  bool tcp;
};

// Median microseconds of one miss, and of the transport alone, for objects of 64 bytes and of a page.
Result<nlohmann::json> measure_misses(const FarRun& run);
// Reads of random lines a second by so many fibers on one worker, and bytes fetched for each useful one.
Result<nlohmann::json> measure_fibers_on(const FarRun& run, Way way, unsigned fibers);
// Accesses a second of a workload, and how the share of segments on the object path changes meanwhile.
Result<nlohmann::json> measure_workload(const FarRun& run, Way way, const std::string& workload);
std::vector<std::string> workload_names();

}  // namespace objects_bench
}  // namespace farside::cli::bench
