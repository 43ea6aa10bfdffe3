#include "measure/fault_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bits.h"
#include "report/format.h"

namespace farside {
namespace {

using nlohmann::json;

struct Phase {
  const char* name;
  const char* counter;
};
// Parts of fault_us; the remainder is "other". Signal delivery and return are counted separately.
constexpr Phase kFaultPhases[] = {
    {"lookup", "lookup_us"}, {"frame wait", "wait_frame_us"}, {"page wait", "wait_page_us"}, {"fetch", "fetch_us"},
    {"map", "map_us"},       {"policy", "account_us"}};
// The phases of the evictors' work. Their CPU time also includes work outside the phases, such as polling and mapping
// in advance.
constexpr Phase kEvictionPhases[] = {{"select", "select_us"},   {"hold", "hold_us"},
                                     {"unmap", "unmap_us"},     {"write", "write_us"},
                                     {"release", "release_us"}, {"evictors' cpu", "evictor_cpu_us"}};

double number(const json& from, const char* name) {
  auto found = from.find(name);
  return found != from.end() && found->is_number() ? found->get<double>() : 0;
}

uint64_t count(const json& from, const char* name) { return static_cast<uint64_t>(number(from, name)); }

double each(double sum, double events) { return events == 0 ? 0 : sum / events; }

json fault_costs(const json& totals) {
  double faults = number(totals, "faults"), rest = each(number(totals, "fault_us"), faults);
  json costs = json::array();
  costs.push_back(json::array({"signal", each(number(totals, "signal_us"), faults)}));
  for (const Phase& phase : kFaultPhases) {
    double us = each(number(totals, phase.counter), faults);
    costs.push_back(json::array({phase.name, us}));
    rest -= us;
  }
  costs.push_back(json::array({"other", std::max(0.0, rest)}));
  costs.push_back(json::array({"return", each(number(totals, "return_us"), faults)}));
  return costs;
}

json eviction_costs(const json& totals) {
  json costs = json::array();
  for (const Phase& phase : kEvictionPhases) {
    costs.push_back(json::array({phase.name, each(number(totals, phase.counter), number(totals, "evictions"))}));
  }
  return costs;
}

json largest_process(const json& statistics) {
  json largest = json::object();
  for (const json& process : statistics.value("processes", json::array())) {
    if (count(process, "heap_peak_bytes") > count(largest, "heap_peak_bytes")) largest = process;
  }
  return largest;
}

using Table = std::vector<std::vector<std::string>>;

// Appends the parts that are not 0 in all rows as columns.
void add_phases(const std::vector<CostRow>& rows, const char* phases, Table* table) {
  for (size_t phase = 0; phase < rows[0].costs[phases].size(); phase++) {
    auto us = [&](const CostRow& row) { return row.costs[phases][phase][1].get<double>(); };
    if (std::ranges::all_of(rows, [&](const CostRow& row) { return us(row) == 0; })) continue;
    table->front().push_back(rows[0].costs[phases][phase][0]);
    for (size_t i = 0; i < rows.size(); i++) (*table)[i + 1].push_back(fmt::format("{:.2f}", us(rows[i])));
  }
}

std::string integer(const json& costs, const char* name) { return std::to_string(costs[name].get<uint64_t>()); }

}  // namespace

uint64_t busiest_fetches(const json& statistics) {
  uint64_t busiest = 0;
  for (const json& process : statistics.value("processes", json::array())) {
    const char* counter = process.contains("busiest_thread_fetches") ? "busiest_thread_fetches" : "major_faults";
    busiest = std::max(busiest, count(process, counter));
  }
  return busiest;
}

json costs_of(const json& statistics) {
  json totals = statistics.value("totals", json::object());
  json costs = {{"us_per_fault", fault_costs(totals)}, {"us_per_eviction", eviction_costs(totals)}};
  for (const char* name : {"faults", "evictions", "dirty_evictions"}) costs[name] = count(totals, name);
  costs["fetches"] = count(totals, "major_faults");
  costs["fetched_pages"] = count(totals, "bytes_fetched") / kPageSize;  // those of huge pages included
  json main = largest_process(statistics);
  costs["heap_bytes"] = count(main, "heap_peak_bytes");
  costs["near_bytes"] = std::min(count(main, "local_bytes"), count(main, "heap_peak_bytes"));
  costs["frame_wait_p99_us"] = number(totals, "frame_wait_p99_us");
  // Assumes that the mix of faults is the same in all threads.
  double in_faults = (number(totals, "fault_us") + number(totals, "signal_us") + number(totals, "return_us")) / 1e6;
  costs["busiest_s"] = each(in_faults, costs["fetches"]) * static_cast<double>(busiest_fetches(statistics));
  return costs;
}

std::string costs_text(const std::string& heading, const std::vector<CostRow>& rows) {
  auto none = [&](const char* events) {
    return std::ranges::all_of(rows, [&](const CostRow& row) { return row.costs[events] == 0; });
  };
  if (none("faults")) return "";
  Table faults = {{"us per fault, " + heading, "faults", "fetching"}};
  Table evictions = {{"us per evicted page, " + heading, "evictions", "dirty", "frame wait p99"}};
  for (const CostRow& row : rows) {
    const json& c = row.costs;
    faults.push_back({row.name, integer(c, "faults"), integer(c, "fetches")});
    double dirty = 100 * each(c["dirty_evictions"], c["evictions"]);
    evictions.push_back({row.name, integer(c, "evictions"), fmt::format("{:.0f}%", dirty),
                         fmt::format("{:.1f}", c["frame_wait_p99_us"].get<double>())});
  }
  add_phases(rows, "us_per_fault", &faults);
  add_phases(rows, "us_per_eviction", &evictions);
  std::string text = format_table(faults);
  return none("evictions") ? text : text + "\n" + format_table(evictions);
}

}  // namespace farside
