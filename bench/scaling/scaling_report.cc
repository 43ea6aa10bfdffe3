// The tables and charts of `farside bench scaling`.
#include "bench/scaling/scaling.h"

namespace farside::bench::scaling {
namespace {

Column millions() { return {"M pages/s", "pages_per_s", 2, 1e6}; }
Column p99() { return {"p99 us", "p99_us", 2}; }
Column busiest_column() { return {"busiest", "busiest"}; }

}  // namespace

std::vector<Table> tables() {
  return {{.head = "this machine: us per access",
           .rows = {"workload", "tier", "cores", "threads"},
           .columns = {{"measured", "measured_us", 2}, {"simulated", "simulated_us", 2}, {"error, %", "error", 0}}},
          {.head = "random read miss",
           .rows = {"workload", "tier"},
           .columns = {{"median", "miss_median_us", 2},
                       {"simulated", "simulated_median_us", 2},
                       {"p99", "miss_p99_us", 2},
                       {"simulated", "simulated_p99_us", 2}}},
          {.head = "evictors",
           .rows = {"design", "workload", "threads"},
           .columns = {millions(), p99()},
           .across = "evictors",
           .only = {{"part", "threads"}}},
          {.head = "48 threads, 4 evictors, hinted",
           .rows = {"workload", "in flight", "batch"},
           .columns = {millions(), p99(), {"evictors busy, %", "evictors_busy", 0, 0.01}},
           .only = {{"part", "batches"}}},
          {.head = "random read: us per fault",
           .rows = {"phase"},
           .columns = {{"", "us", 2}},
           .across = "at",
           .only = {{"part", "breakdown"}}},
          {.head = "48 threads",
           .rows = {"workload", "change"},
           .columns = {millions(), p99(), busiest_column()},
           .only = {{"part", "changes"}}},
          {.head = "random read, 48 threads, M pages/s",
           .rows = {"costs"},
           .columns = {{"", "pages_per_s", 2, 1e6}},
           .across = "design",
           .only = {{"part", "sensitivity"}}},
          {.head = "random read",
           .rows = {"design", "threads"},
           .columns = {millions(), {"mean us", "mean_us", 2}, p99(), busiest_column()},
           .only = {{"part", "others"}}},
          {.head = "tiers",
           .rows = {"tier", "workload", "cores", "threads", "wait", "pages"},
           .columns = {millions(), {"Gbit/s", "pages_per_s", 0, 1e9 / 4096 / 8}, p99(), busiest_column()},
           .only = {{"part", "tiers"}}}};
}

std::vector<Curves> charts() {
  auto threads = [](const char* y_label, const char* figure, double unit) {
    return Curves{.title = "random read",
                  .x_label = "threads",
                  .y_label = y_label,
                  .x = "threads",
                  .figures = {figure},
                  .series = {"evictors"},
                  .panels = {"design"},
                  .unit = unit,
                  .only = {{"part", "threads"}, {"workload", "random read"}},
                  .file = "_threads"};
  };
  return {threads("million pages a second", "pages_per_s", 1e6),
          threads("p99 of a fault, us", "p99_us", 1),
          {.title = "48 threads, 4 evictors",
           .x_label = "pages a batch",
           .y_label = "million pages a second",
           .x = "batch",
           .figures = {"pages_per_s"},
           .series = {"in flight"},
           .panels = {"workload"},
           .unit = 1e6,
           .only = {{"part", "batches"}},
           .file = "_batches"},
          {.title = "Where the time of a random read fault goes, 48 threads",
           .x_label = "",
           .y_label = "us",
           .x = "phase",
           .figures = {"us"},
           .series = {"design"},
           .only = {{"part", "breakdown"}, {"threads", 48}},
           .file = "_breakdown"}};
}

}  // namespace farside::bench::scaling
