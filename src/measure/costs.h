// What a run's statistics (--stats=json:) say of the price of faults and evictions. Counters that a version does not
// write count as 0.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace farside {

// Fetching faults of the thread that had most of them.
uint64_t busiest_fetches(const nlohmann::json& statistics);

// {"near_bytes", "heap_bytes": of the process with the largest heap, "faults", "fetches", "prefetched", "evictions",
// "dirty_evictions", "frame_wait_p99_us", "busiest_s": seconds that the busiest thread spent in faults, about,
// "us_per_fault" and "us_per_eviction": [[name, us], ...]}
nlohmann::json costs_of(const nlohmann::json& statistics);

// A line of costs, with what they belong to ("25%").
struct CostRow {
  std::string name;
  nlohmann::json costs;  // of costs_of()
};
// Two tables, for a fault and for an evicted page; parts that are 0 everywhere are left out. "" without faults.
std::string costs_text(const std::string& heading, const std::vector<CostRow>& rows);

}  // namespace farside
