// The tables and charts of `farside bench scaling`.
#include "bench/scaling/scaling.h"

namespace farside::bench::scaling {
namespace {

const Column kMillions = col("M pages/s", "pages_per_s", 2, 1e6), kP99 = col("p99 us", "p99_us", 2),
             kBusiest = col("busiest", "busiest");

nlohmann::json part(const char* name) { return {{"part", name}}; }

}  // namespace

std::vector<Table> tables() {
  return {table("this machine: us per access", {"workload", "tier", "cores", "threads"},
                {col("measured", "measured_us", 2), col("simulated", "simulated_us", 2), col("error, %", "error", 0)}),
          table("random read miss", {"workload", "tier"},
                {col("median", "miss_median_us", 2), col("simulated", "simulated_median_us", 2),
                 col("p99", "miss_p99_us", 2), col("simulated", "simulated_p99_us", 2)}),
          table("evictors", {"design", "workload", "threads"}, {kMillions, kP99}).by("evictors").of(part("threads")),
          table("48 threads, 4 evictors, hinted", {"workload", "in flight", "batch"},
                {kMillions, kP99, col("evictors busy, %", "evictors_busy", 0, 0.01)})
              .of(part("batches")),
          table("random read: us per fault", {"phase"}, {col("", "us", 2)}).by("at").of(part("breakdown")),
          table("48 threads", {"workload", "change"}, {kMillions, kP99, kBusiest}).of(part("changes")),
          table("random read, 48 threads, M pages/s", {"costs"}, {col("", "pages_per_s", 2, 1e6)})
              .by("design")
              .of(part("sensitivity")),
          table("random read", {"design", "threads"}, {kMillions, col("mean us", "mean_us", 2), kP99, kBusiest})
              .of(part("others")),
          table("tiers", {"tier", "workload", "cores", "threads", "wait", "pages"},
                {kMillions, col("Gbit/s", "pages_per_s", 0, 1e9 / 4096 / 8), kP99, kBusiest})
              .of(part("tiers"))};
}

std::vector<Curves> charts() {
  auto threads = [](const char* y_label, const char* figure, double unit) {
    return chart("random read", "threads", y_label, "threads", {figure}, {"evictors"})
        .by({"design"})
        .in(unit)
        .of({{"part", "threads"}, {"workload", "random read"}})
        .to("_threads");
  };
  return {threads("million pages a second", "pages_per_s", 1e6), threads("p99 of a fault, us", "p99_us", 1),
          chart("48 threads, 4 evictors", "pages a batch", "million pages a second", "batch", {"pages_per_s"},
                {"in flight"})
              .by({"workload"})
              .in(1e6)
              .of(part("batches"))
              .to("_batches"),
          chart("Where the time of a random read fault goes, 48 threads", "", "us", "phase", {"us"}, {"design"})
              .of({{"part", "breakdown"}, {"threads", 48}})
              .to("_breakdown")};
}

}  // namespace farside::bench::scaling
