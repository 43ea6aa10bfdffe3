// `farside bench paging`: one word on each page, read and written, at random and in order, in every configuration.
#include <algorithm>

#include "bench/suites.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using pager::Delivery;

struct Configuration {
  const char* name;
  const char* transport;  // nullptr: memory of the kernel
  Delivery delivery = Delivery::kSignal;
  HugePages huge = HugePages::kAuto;
  bool round_trip = false;  // the transport alone is measured as well
};
constexpr Configuration kConfigurations[] = {{"native", nullptr},
                                             {"shm", "shm", Delivery::kSignal, HugePages::kAuto, true},
                                             {"tcp", "tcp", Delivery::kSignal, HugePages::kAuto, true},
                                             {"shm pages", "shm", Delivery::kSignal, HugePages::kNever},
                                             {"tcp pages", "tcp", Delivery::kSignal, HugePages::kNever},
                                             {"ucx", "ucx", Delivery::kSignal, HugePages::kAuto, true},
                                             {"shm handler", "shm", Delivery::kMessages},
                                             {kSwap, nullptr},
                                             {"all near", "shm"}};

bool is(const Configuration& configuration, std::string_view name) { return configuration.name == name; }

// "rest" is the time of a fault outside the handler, where no counter runs: exception entry, signal delivery, return.
void add_rest(json* measured) {
  for (json& cell : (*measured)["cells"]) {
    json& counters = cell["counters"];
    if (!counters.contains("fault_us")) continue;
    double all = cell["us"].get<double>() * counters["accesses"].get<double>();
    counters["rest_us"] = std::max(0.0, all - counters["fault_us"].get<double>());
  }
}

Result<json> measure_far_rows(const Setup& setup, const Configuration& configuration) {
  FarMemoryConfig far = setup.far(configuration.transport);
  far.delivery = configuration.delivery;
  far.huge = configuration.huge;
  json trip;
  if (configuration.round_trip) {
    auto measured = measure_round_trip(far);
    if (!measured.ok()) return measured.status();
    trip = (*measured)["us"];
  }
  auto measured = measure_far(access_settings(setup.settings()), far);
  if (!measured.ok()) return measured.status();
  add_rest(&*measured);
  json& miss = (*measured)["miss"];
  if (trip.is_number()) miss["round_trip_us"] = trip;
  if (trip.is_number() && miss.contains("median_us"))
    miss["beyond_us"] = miss["median_us"].get<double>() - trip.get<double>();
  return access_rows(*measured);
}

Result<json> measure(const Setup& setup, const Configuration& configuration) {
  AccessSettings settings = access_settings(setup.settings());
  if (is(configuration, "all near")) return measure_all_near(settings, setup.far(configuration.transport));
  if (configuration.transport) return measure_far_rows(setup, configuration);
  auto measured = measure_plain(settings, is(configuration, kSwap) ? setup.swap() : nullptr);
  if (!measured.ok()) return measured.status();
  // Native memory has no misses: a slow access there was interrupted.
  if (is(configuration, "native")) (*measured)["miss"] = nullptr;
  return access_rows(*measured);
}

std::vector<Measurement> measurements(const Setup& setup) {
  auto all = measure_each(setup, measure, Axis{"configuration", kConfigurations});
  std::erase_if(all, [&](const Measurement& m) {
    return setup.missing().contains(m.name) || !Settings::wants(setup.settings().configurations, m.name);
  });
  for (Measurement& m : all) m.may_fail = m.name == kSwap;
  return all;
}

Target beside(const char* slower, const char* faster, const char* workload, double limit) {
  return goal("{workload}: " + std::string(faster) + ", times as fast as {configuration}", "us", at_least(limit),
              {{"configuration", slower}, {"workload", workload}, {"threads", 1}})
      .over("us", {{"configuration", faster}});
}

Column per_access(const char* head, const char* counter) { return col(head, counter, 2, 1, "counters/accesses"); }
Column per_eviction(const char* head, const char* counter) { return col(head, counter, 2, 1, "counters/evictions"); }

std::vector<Table> tables() {
  return {table("us per access", {"workload", "threads"}, {col("", "us", 2)}).by("configuration", kSwap),
          table("random read miss, us", {"configuration"},
                {col("median", "median_us", 2), col("p99", "p99_us", 2), col("p99.9", "p999_us", 2),
                 col("p99 / median", "p99_us", 1, 1, "median_us"), col("polled round trip", "round_trip_us", 2),
                 col("beyond it", "beyond_us", 2)})
              .of({{"workload", kMisses}}),
          table("per access", {"workload", "configuration"},
                {per_access("faults", "counters/faults"), per_access("prefetched", "counters/prefetched"),
                 per_access("us in fault", "counters/fault_us"), per_access("fetch", "counters/fetch_us"),
                 per_access("map", "counters/map_us"), per_access("frame wait", "counters/wait_frame_us"),
                 per_access("page wait", "counters/wait_page_us"), per_access("rest", "counters/rest_us")})
              .of({{"threads", 1}}),
          table("us per evicted page", {"workload", "configuration"},
                {col("evictions", "counters/evictions", 0),
                 col("dirty, %", "counters/dirty_evictions", 0, 0.01, "counters/evictions"),
                 col("pages per batch", "counters/evictions", 0, 1, "counters/batches"),
                 per_eviction("select", "counters/select_us"), per_eviction("hold", "counters/hold_us"),
                 per_eviction("unmap", "counters/unmap_us"), per_eviction("write", "counters/write_us"),
                 per_eviction("release", "counters/release_us")})
              .of({{"threads", 1}}),
          table("a compute loop over far memory, against plain memory", {"configuration"},
                {col("times as long", "ratio", 3)})};
}

std::vector<Target> targets() {
  auto tcp = [](const char* workload) -> json {
    return {{"configuration", "tcp"}, {"workload", workload}, {"threads", 1}};
  };
  return {beside(kSwap, "shm", "random read", 2),
          beside(kSwap, "shm", "random write", 2),
          beside(kSwap, "shm", "sequential read", 15),
          beside(kSwap, "shm", "sequential write", 12),
          beside("shm pages", "shm", "sequential read", 3),
          beside("shm pages", "shm", "sequential write", 2),
          beside("shm pages", "shm", "random read", 0.97),
          beside("shm pages", "shm", "random write", 0.97),
          goal("sequential read: tcp with huge pages", "us", at_most(1.3, " us"), tcp("sequential read")),
          goal("sequential write: tcp with huge pages", "us", at_most(2.5, " us"), tcp("sequential write")),
          goal("random read miss over tcp, beyond the transport's polled round trip", "beyond_us", at_most(4, " us"),
               {{"configuration", "tcp"}, {"workload", kMisses}}),
          goal("random read miss over shm, p99 against its median", "p99_us", at_most(5),
               {{"configuration", "shm"}, {"workload", kMisses}})
              .over("median_us"),
          goal("compute loop over far memory that is all near, against plain memory", "ratio", at_most(1.02),
               {{"configuration", "all near"}})};
}

}  // namespace

AccessSettings access_settings(const Settings& s) {
  return {.bytes = s.bytes, .local = s.share, .accesses = s.accesses, .seconds = s.seconds};
}

json access_rows(const json& measured) {
  json rows = json::array();
  for (const json& cell : measured["cells"]) {
    rows.push_back(make_row({{"workload", cell["workload"]}, {"threads", cell["threads"]}},
                            {{"us", cell["us"]}, {"counters", cell["counters"]}}));
  }
  if (measured["miss"].is_object()) rows.push_back(make_row({{"workload", kMisses}}, measured["miss"]));
  return rows;
}

Suite paging_suite() {
  json shown = {{"threads", 1},
                {"configuration", {"shm", "tcp", "shm pages", "tcp pages", "ucx", "shm handler", kSwap}}};
  return {.name = "paging",
          .measurements = measurements,
          .tables = tables(),
          .targets = targets(),
          .charts = {
              chart("One access, one thread", "", "microseconds, less is better", "workload", {"us"}, {"configuration"})
                  .of(shown)}};
}

}  // namespace farside::bench
