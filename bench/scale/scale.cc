// `farside bench threads`: faults and evictions a second by one thread and by many, over far memory and on kernel swap,
// beside what the kernel alone permits. The order of the measurements is that of their importance, for --budget.
#include "bench/scale/scale.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "bench/scale/kernel_alone.h"
#include "bench/scaling/calibrate.h"

namespace farside::bench {
namespace scale {
namespace {

using nlohmann::json;
using pager::Delivery;

constexpr const char* kKernelAlone = "kernel alone";
constexpr double kCostsSeconds = 0.3;  // for each of about 40 measurements of the costs
constexpr uint64_t kCostsAccesses = 30000;

struct Configuration {
  const char* name;
  const char* transport;  // nullptr: kernel swap
  Delivery delivery = Delivery::kSignal;
  unsigned evictors = 0;  // 0: as set
  HugePages huge = HugePages::kAuto;
  bool hinted = false;
};
constexpr Configuration kShm = {"shm", "shm"};
constexpr Configuration kTcp = {"tcp", "tcp"};
constexpr Configuration kHandler = {"shm handler", "shm", Delivery::kMessages};
constexpr Configuration kKernel = {kSwap, nullptr};
constexpr Configuration kPages = {"shm pages", "shm", Delivery::kSignal, 0, HugePages::kNever};
constexpr Configuration kHinted = {"shm, hinted", "shm", Delivery::kSignal, 0, HugePages::kAuto, true};
constexpr Configuration kOneEvictor = {"shm, 1 evictor", "shm", Delivery::kSignal, 1};
constexpr Configuration kTwoEvictors = {"shm, 2 evictors", "shm", Delivery::kSignal, 2};
constexpr Configuration kEightEvictors = {"shm, 8 evictors", "shm", Delivery::kSignal, 8};

AccessSettings accesses_of(const Settings& s, const Workload& workload) {
  return {.bytes = s.bytes,
          .local = s.share,
          .accesses = s.accesses,
          .seconds = s.seconds,
          .threads = s.threads,
          .workloads = {workload}};
}

// A rate of a cell's counter.
double per_second(const json& cell, const char* counter) {
  const json& counters = cell["counters"];
  return counters.value(counter, 0.0) * cell["per_s"].get<double>() / counters["accesses"].get<double>();
}

json row_of(const json& cell) {
  json figures = {{"per_s", cell["per_s"]}, {"us", cell["us"]}, {"counters", cell["counters"]}};
  if (cell["counters"].contains("faults")) {
    figures["faults_per_s"] = per_second(cell, "faults");
    figures["evictions_per_s"] = per_second(cell, "evictions");
  }
  return make_row({{"threads", cell["threads"]}}, figures);
}

Result<json> measure_paging(const Setup& setup, const Configuration& configuration, const Workload& workload) {
  AccessSettings settings = accesses_of(setup.settings(), workload);
  settings.hinted = configuration.hinted;
  if (configuration.evictors) settings.threads = {settings.threads.back()};
  FarMemoryConfig far;
  if (configuration.transport) {
    far = setup.far(configuration.transport);
    far.delivery = configuration.delivery;
    far.huge = configuration.huge;
    if (configuration.evictors) far.evictors = configuration.evictors;
  }
  auto measured = configuration.transport ? measure_far(settings, far) : measure_plain(settings, setup.swap());
  if (!measured.ok()) return measured.status();
  json rows = json::array();
  for (const json& cell : (*measured)["cells"]) rows.push_back(row_of(cell));
  return rows;
}

// The same for each number of threads.
template <typename Measure>
Result<json> for_threads(const Settings& settings, Measure measure) {
  json rows = json::array();
  for (unsigned threads : settings.threads) {
    Result<json> figures = measure(threads);
    if (!figures.ok()) return figures;
    rows.push_back(make_row({{"threads", threads}}, *figures));
  }
  return rows;
}

Result<json> measure_costs(const Setup& setup) {
  const Settings& s = setup.settings();
  AccessSettings paging = {
      .bytes = s.bytes, .local = s.share, .accesses = kCostsAccesses, .seconds = std::min(s.seconds, kCostsSeconds)};
  scaling::Calibration calibration(paging, s.place, setup.hold());
  Result<json> run = calibration.measure();
  if (!run.ok()) return run;
  calibration.add(*run);
  return json{{"costs", {to_json(calibration.costs())}}};
}

Measurement paging(const Setup& setup, const Configuration& configuration, const Workload& workload) {
  return {.key = {{"configuration", configuration.name}, {"workload", workload.name}},
          .name = fmt::format("{}, {}", configuration.name, workload.name),
          .run = std::bind_front(measure_paging, std::cref(setup), configuration, workload),
          .may_fail = true};
}

template <typename Case, typename Measure>
void add_kernel_alone(const Setup& setup, const Case& alone, Measure measure, std::vector<Measurement>* all) {
  const Settings& s = setup.settings();
  auto run = [&s, alone, measure] {
    return for_threads(s, [&](unsigned threads) { return measure(alone, threads, s.seconds / 2); });
  };
  all->push_back({.key = {{"configuration", kKernelAlone}, {"workload", alone.name}},
                  .name = fmt::format("{}, {}", kKernelAlone, alone.name),
                  .run = run,
                  .may_fail = true});
}

std::vector<Measurement> measurements(const Setup& setup) {
  std::vector<Measurement> all = {paging(setup, kShm, kRandomRead)};
  for (const AloneCase& alone : kAloneCases) add_kernel_alone(setup, alone, measure_alone, &all);
  for (const DropCase& drop : kDropCases) add_kernel_alone(setup, drop, measure_drops, &all);
  for (const Configuration& c : {kHinted, kOneEvictor, kTwoEvictors, kEightEvictors})
    all.push_back(paging(setup, c, kRandomRead));
  all.push_back(paging(setup, kShm, kRandomWrite));
  for (const Configuration& c : {kTcp, kHandler, kKernel}) all.push_back(paging(setup, c, kRandomRead));
  for (const Configuration& c : {kShm, kPages, kTcp, kHandler, kKernel})
    all.push_back(paging(setup, c, kSequentialRead));
  for (const Configuration& c : {kTcp, kHandler, kKernel}) all.push_back(paging(setup, c, kRandomWrite));
  all.push_back({.key = {{"part", "costs"}},
                 .name = "costs of the simulation",
                 .run = [&setup] { return measure_costs(setup); },
                 .may_fail = true,
                 .in_parent = true});
  std::erase_if(all, [&](const Measurement& m) { return !setup.swap() && m.key.value("configuration", "") == kSwap; });
  return all;
}

Table rates(const char* head, const char* figure, double unit) {
  return table(head, {"configuration", "workload"}, {col("", figure, 3, unit)}).by("threads");
}

}  // namespace
}  // namespace scale

std::vector<unsigned> with_processors(std::vector<unsigned> threads) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::erase_if(threads, [&](unsigned n) { return n > static_cast<unsigned>(CPU_COUNT(&allowed)); });
  return threads;
}

Suite threads_suite() {
  return {.name = "threads",
          .measurements = scale::measurements,
          .tables = {scale::rates("million accesses or operations a second", "per_s", 1e6),
                     scale::rates("million faults a second", "faults_per_s", 1e6),
                     scale::rates("million evictions a second", "evictions_per_s", 1e6),
                     scale::rates("us of one thread", "us", 1)},
          .charts = {chart("Random reads and what the kernel alone permits", "threads", "million a second", "threads",
                           {"per_s"}, {"configuration", "workload"})
                         .in(1e6)
                         .of({{"workload", {"random read", "signal", "fault and copy"}}})}};
}

}  // namespace farside::bench
