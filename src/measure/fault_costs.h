// The costs of faults and evictions, from the statistics of a run (--stats=json:). Pure functions. Counters that are
// missing count as 0.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace farside {

// The number of faults that fetched, of the thread with the most of them.
uint64_t busiest_fetches(const nlohmann::json& statistics);

// {"near_bytes", "heap_bytes": of the process with the largest heap; "faults", "fetches", "fetched_pages", "evictions",
// "dirty_evictions", "frame_wait_p99_us"; "busiest_s": estimate of the time that the busiest thread spent in faults;
// "us_per_fault" and "us_per_eviction": [[name, us], ...]}
nlohmann::json costs_of(const nlohmann::json& statistics);

// A row of costs, and its label ("25%").
struct CostRow {
  std::string name;
  nlohmann::json costs;  // from costs_of()
};
// Two tables, for a fault and for an evicted page; parts that are 0 everywhere are left out. "" without faults.
std::string costs_text(const std::string& heading, const std::vector<CostRow>& rows);

}  // namespace farside
