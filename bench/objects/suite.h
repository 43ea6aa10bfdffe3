// A suite of `farside bench objects`: its measurements, and the text, goals and charts made from their rows. Each suite
// is one file; objects.cc runs them.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/objects/objects.h"
#include "measure/chart.h"
#include "measure/far_memory.h"
#include "measure/process.h"
#include "measure/statistics.h"
#include "measure/swap.h"

namespace farside::bench::objects_bench {

inline constexpr const char* kTransports[] = {"shm", "tcp"};
inline constexpr const char* kSwap = "kernel swap";  // in the rows of other configurations: their transport

// The environment of all measurements.
struct Context {
  const ObjectsSettings& settings;
  const ServerProcess& server;
  const KernelSwap* swap;  // nullptr: not available

  uint64_t near_bytes() const { return static_cast<uint64_t>(settings.local * static_cast<double>(settings.bytes)); }
  // Far memory over "shm" or "tcp"; the near memory is the share of the data given by the settings.
  FarMemoryConfig far_config(const std::string& transport) const {
    return {
        .address = transport == "tcp" ? server.tcp() : server.shm(), .token = server.token(), .local = near_bytes()};
  }
};

// A measurement runs in its own process, once in each repetition. Its result is an array of make_row()s.
struct Measurement {
  std::string name;
  std::function<Result<nlohmann::json>()> run;
  bool may_fail = false;  // a failed repetition is left out: the kernel may kill a process that swaps too slowly
};

// A row of the document: its key and its figures. The document contains a summary over all repetitions for figures that
// are numbers, and the value of the last repetition for others.
nlohmann::json make_row(nlohmann::json key, nlohmann::json figures);

struct Suite {
  const char* name;
  std::vector<Measurement> (*measurements)(const Context& context);
  std::string (*text)(const nlohmann::json& document);
  std::vector<Goal> (*goals)(const nlohmann::json& document);
  std::vector<LineChart> (*charts)(const nlohmann::json& document);
};
extern const Suite kNear, kMisses, kFibers, kPaths, kMap, kFreeMemory, kPauses, kEviction, kNearApps;

// For suites without charts.
std::vector<LineChart> no_charts(const nlohmann::json& document);

// The first row with all members of `key`; nullptr if there is none.
const nlohmann::json* find_row(const nlohmann::json& document, const nlohmann::json& key);
// The median of a figure; 0 if there is no such row.
double figure(const nlohmann::json& document, const nlohmann::json& key, const char* name);
// The same divided by `unit`, as text; "-" if there is no such row.
std::string figure_text(const nlohmann::json& document, const nlohmann::json& key, const char* name, double unit = 1,
                        int digits = 1);
// Adds a goal for figure / beside; none if either is missing.
void add_ratio_goal(std::vector<Goal>* goals, const std::string& name, double figure, double beside, double limit,
                    bool at_least);

}  // namespace farside::bench::objects_bench
