// A part of `farside bench objects`: what it measures, and how that is shown. Each part is one file; objects.cc runs
// them all.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/objects/objects.h"
#include "measure/far_memory.h"
#include "measure/process.h"
#include "measure/swap.h"
#include "report/chart.h"
#include "report/statistics.h"

namespace farside::bench::objects_bench {

inline constexpr const char* kOvers[] = {"shm", "tcp"};
inline constexpr const char* kSwap = "kernel swap";  // where others name their transport

// What measurements are made with.
struct Context {
  const ObjectsSettings& settings;
  const ServerProcess& server;
  const KernelSwap* swap;  // nullptr: there is none here

  uint64_t near_bytes() const { return static_cast<uint64_t>(settings.local * static_cast<double>(settings.bytes)); }
  // Far memory over "shm" or "tcp", with the settings' share of the data near.
  FarMemoryConfig far_config(const std::string& over) const {
    return {.address = over == "tcp" ? server.tcp() : server.shm(), .token = server.token(), .local = near_bytes()};
  }
};

// Something that runs in a process of its own, once in each repetition. Its result is an array of make_row()s.
struct Measurement {
  std::string name;
  std::function<Result<nlohmann::json>()> run;
  bool may_fail = false;  // a repetition that fails is left out: the kernel may end what swaps too slowly
};

// A row of the document: what it is about, and its figures. Of figures that are numbers the document has a summary over
// all repetitions, and of all else what the last one gave.
nlohmann::json make_row(nlohmann::json key, nlohmann::json figures);

struct Suite {
  const char* name;
  std::vector<Measurement> (*measurements)(const Context& context);
  std::string (*text)(const nlohmann::json& document);
  std::vector<Goal> (*goals)(const nlohmann::json& document);
  std::vector<LineChart> (*charts)(const nlohmann::json& document);
};
extern const Suite kNear, kMisses, kFibers, kPaths, kMap, kFreeMemory, kPauses, kEviction, kNearApps;

// For parts without.
std::vector<LineChart> no_charts(const nlohmann::json& document);

// The document's row that has all of `key`; nullptr where there is none.
const nlohmann::json* find_row(const nlohmann::json& document, const nlohmann::json& key);
// A figure's median; 0 where there is none.
double figure(const nlohmann::json& document, const nlohmann::json& key, const char* name);
// The same as text; "-" where there is none.
std::string figure_text(const nlohmann::json& document, const nlohmann::json& key, const char* name, double unit = 1,
                        int digits = 1);
// A goal about one figure beside another; none where one of them is missing.
void add_ratio_goal(std::vector<Goal>* goals, const std::string& name, double figure, double beside, double limit,
                    bool at_least);

}  // namespace farside::bench::objects_bench
