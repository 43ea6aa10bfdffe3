// `farside bench all`: every application of bench/apps natively, over far memory with and without hints and without
// huge pages, and on kernel swap, at each share of near memory, beside an ideal system.
#include "base/size.h"
#include "bench/application_runs.h"
#include "bench/suites.h"

namespace farside::bench {
namespace {

using nlohmann::json;

const Application kApplications[] = {
    {"psrs_sort", "2q"},
    {"analytics", "2q"},
    {"web_frontend", "priority"},
    {"kv_server", "2q"},
    {"checksum_scan", "2q"},
    {"gups", "2q"},
    {"cross_sections", "priority"},
    {"word_count", "2q"},
    {"pagerank", "priority"},
    // Its request rate is fixed. The compared value is the number of requests that a closed loop completes.
    {"memcached_load", nullptr, "capacity_per_s", {"--operations", "10000", "--rates", "5000,10000,20000,40000,80000"}},
};

const Configuration kConfigurations[] = {{.name = "far", .ideal = true},
                                         {.name = "pages", .options = {"--huge", "never"}},
                                         {.name = "hinted", .hints = true},
                                         {.name = kSwap, .swap = true},
                                         {.name = "traced", .trace = true}};

std::vector<Measurement> measurements(const Setup& setup) {
  return application_measurements(setup, {kApplications, kConfigurations, {setup.settings().transport}, NearOf::kHeap});
}

Column cost(const char* head, const char* figure) { return col(head, figure, 2); }

std::vector<Table> tables() {
  const json only = {{"configuration", {"far", "pages", "hinted", "ideal", kSwap}}}, far = {{"configuration", "far"}};
  return {
      table("native", {"app"},
            {col("thousand operations/s", "operations_per_s", 1, 1000), col("fill s", "fill_s", 2),
             col("run s", "run_s", 2), col("p99 us", "p99_us"), col("peak MiB", "peak_bytes", 0, kMiB)})
          .of({{"configuration", kNative}}),
      table("% of native", {"app", "near"}, {col("", "of_native", 0)})
          .by("configuration")
          .of(only)
          .with("ideal: if a fetch cost the link's latency and nothing else"),
      table("p99 us", {"app", "near"}, {col("", "p99_us")}).by("configuration").of(only),
      table("us per fault", {"app", "near"},
            {col("faults", "costs/faults", 0), col("fetching", "costs/fetches", 0), col("busiest thread", "fetches", 0),
             cost("signal", "costs/fault signal"), cost("lookup", "costs/fault lookup"),
             cost("frame wait", "costs/fault frame wait"), cost("page wait", "costs/fault page wait"),
             cost("fetch", "costs/fault fetch"), cost("map", "costs/fault map"), cost("policy", "costs/fault policy"),
             cost("other", "costs/fault other"), cost("return", "costs/fault return")})
          .of(far),
      table(
          "us per evicted page", {"app", "near"},
          {col("evictions", "costs/evictions", 0), col("dirty, %", "costs/dirty_evictions", 0, 0.01, "costs/evictions"),
           col("frame wait p99", "costs/frame_wait_p99_us"), cost("select", "costs/evict select"),
           cost("hold", "costs/evict hold"), cost("unmap", "costs/evict unmap"), cost("write", "costs/evict write"),
           cost("release", "costs/evict release"), cost("evictors' cpu", "costs/evict evictors' cpu")})
          .of(far),
      table("faults at lines with hints", {"app", "near"},
            {col("hints", "hints", 0), col("% of the faults", "coverage", 0, 0.01)}),
      table("link", {"link"}, {col("us per page", "us", 2)})};
}

}  // namespace

// A chart has the configurations in a fixed order, so that each has the same colour in all of them.
Suite applications_suite() {
  return {
      .name = "applications",
      .measurements = measurements,
      .tables = tables(),
      .charts = {chart("", "% of its memory near", "% of native", "near", {"of_native"}, {"configuration"}).by({"app"}),
                 chart("", "seconds", "operations/s", nullptr, {"timeline"}, {"configuration"})
                     .by({"app", "near"})
                     .to("_timelines"),
                 chart("", "operations/s", "p99 us", nullptr, {"load"}, {"configuration"})
                     .by({"app", "near"})
                     .up_to(0, 5000)
                     .to("_latency")}};
}

std::vector<std::string> application_names() {
  std::vector<std::string> names;
  for (const Application& app : kApplications) names.emplace_back(app.name);
  return names;
}

}  // namespace farside::bench
