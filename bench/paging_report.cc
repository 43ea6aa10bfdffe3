#include "bench/paging_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "bench/paging.h"
#include "measure/access.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Table = std::vector<std::vector<std::string>>;

constexpr const char* kSwap = "zram swap";
constexpr const char* kNative = "native";
constexpr const char* kConfigurations[] = {kNative,     "shm", "tcp",         "shm pages",
                                           "tcp pages", "ucx", "shm handler", kSwap};

const json* find_cell(const json& document, const std::string& configuration, const std::string& workload,
                      unsigned threads) {
  for (const json& cell : document["cells"]) {
    if (cell["configuration"] == configuration && cell["workload"] == workload && cell["threads"] == threads)
      return &cell;
  }
  return nullptr;
}

double us_of(const json& document, const std::string& configuration, const std::string& workload, unsigned threads) {
  const json* cell = find_cell(document, configuration, workload, threads);
  return cell ? (*cell)["us"]["median"].get<double>() : -1;
}

std::vector<std::string> configurations_in(const json& document) {
  std::vector<std::string> configurations;
  for (const char* configuration : kConfigurations) {
    if (find_cell(document, configuration, kRandomRead.name, 1)) configurations.push_back(configuration);
  }
  return configurations;
}

std::string us(double value) { return value < 0 ? "-" : fmt::format("{:.2f}", value); }

std::string access_table(const json& document) {
  std::vector<std::string> configurations = configurations_in(document);
  bool compare = std::find(configurations.begin(), configurations.end(), kSwap) != configurations.end();
  Table table = {{"us per access", "threads"}};
  for (const std::string& configuration : configurations) table[0].push_back(configuration);
  for (const std::string& configuration : configurations) {
    if (compare && configuration != kNative && configuration != kSwap)
      table[0].push_back(kSwap + (" / " + configuration));
  }
  for (const Workload& workload : kWorkloads) {
    for (unsigned threads : {1u, 2u}) {
      std::vector<std::string> row = {workload.name, std::to_string(threads)};
      for (const std::string& configuration : configurations)
        row.push_back(us(us_of(document, configuration, workload.name, threads)));
      double swap = us_of(document, kSwap, workload.name, threads);
      for (const std::string& configuration : configurations) {
        if (!compare || configuration == kNative || configuration == kSwap) continue;
        row.push_back(fmt::format("{:.2f}x", swap / us_of(document, configuration, workload.name, threads)));
      }
      table.push_back(row);
    }
  }
  return format_table(table);
}

std::string miss_table(const json& document) {
  if (!document.contains("misses")) return "";
  Table table = {{"random read miss, us", "median", "p99", "p99.9", "p99 / median", "polled round trip", "beyond it"}};
  for (const auto& [configuration, miss] : document["misses"].items()) {
    if (!miss.contains("median_us")) continue;
    double middle = miss["median_us"], p99 = miss["p99_us"];
    auto at = json::json_pointer("/round_trip_us") / configuration / "median";
    double trip = document.contains(at) ? document[at].get<double>() : -1;
    table.push_back({configuration, us(middle), us(p99), us(miss["p999_us"]), fmt::format("{:.1f}x", p99 / middle),
                     us(trip), trip < 0 ? "-" : us(middle - trip)});
  }
  return format_table(table);
}

// Where the time of a fault is spent. "rest" is outside the handler, where no counter runs: exception entry, signal
// delivery and return.
std::string fault_table(const json& document) {
  Table table = {{"per access", "configuration", "faults", "prefetched", "us in fault", "fetch", "map", "frame wait",
                  "page wait", "rest"}};
  for (const json& cell : document["cells"]) {
    const json& c = cell["counters"];
    if (!c.contains("faults") || cell["threads"] != 1) continue;
    double count = std::max(1.0, c["accesses"].get<double>());
    auto per = [&](const char* name) { return fmt::format("{:.2f}", c[name].get<double>() / count); };
    double outside = cell["us"]["median"].get<double>() - c["fault_us"].get<double>() / count;
    table.push_back({cell["workload"], cell["configuration"], per("faults"), per("prefetched"), per("fault_us"),
                     per("fetch_us"), per("map_us"), per("wait_frame_us"), per("wait_page_us"),
                     us(std::max(0.0, outside))});
  }
  return format_table(table);
}

std::string eviction_table(const json& document) {
  Table table = {{"us per evicted page", "configuration", "evictions", "dirty", "pages per batch", "select", "hold",
                  "unmap", "write", "release"}};
  for (const json& cell : document["cells"]) {
    const json& c = cell["counters"];
    if (!c.contains("evictions") || cell["threads"] != 1) continue;
    double pages = std::max(1.0, c["evictions"].get<double>());
    auto per = [&](const char* name) { return fmt::format("{:.2f}", c[name].get<double>() / pages); };
    table.push_back({cell["workload"], cell["configuration"], fmt::format("{:.0f}", c["evictions"].get<double>()),
                     fmt::format("{:.0f}%", 100 * c["dirty_evictions"].get<double>() / pages),
                     fmt::format("{:.0f}", pages / std::max(1.0, c["batches"].get<double>())), per("select_us"),
                     per("hold_us"), per("unmap_us"), per("write_us"), per("release_us")});
  }
  return format_table(table);
}

std::string all_near_line(const json& document) {
  if (!document.contains("all_near_ratio")) return "";
  const json& ratio = document["all_near_ratio"];
  return fmt::format(
      "all near: a compute loop over far memory takes {:.3f} times as long as over plain memory ({:.3f} to "
      "{:.3f})\n\n",
      ratio["median"].get<double>(), ratio["min"].get<double>(), ratio["max"].get<double>());
}

std::string goal_lines(const json& document) {
  std::string text;
  for (const Goal& goal : paging_goals(document)) text += goal.text() + "\n";
  return text;
}

}  // namespace

std::string paging_text(const json& document) {
  const json& settings = document["settings"];
  std::string text = machine_text(document["machine"]) + "\n";
  text += fmt::format("{} of data, {:.0f}% of it near; medians of {} runs, configurations in turn\n\n",
                      format_size(settings["bytes"].get<uint64_t>()), 100 * settings["local_share"].get<double>(),
                      settings["repetitions"].get<unsigned>());
  text += access_table(document);
  for (const auto& [configuration, reason] : document["skipped"].items()) {
    text += fmt::format("{}: not run: {}\n", configuration, reason.get<std::string>());
  }
  text += "\n" + miss_table(document) + "\n" + fault_table(document) + "\n" + eviction_table(document);
  return text + "\n" + all_near_line(document) + goal_lines(document);
}

Chart paging_chart(const json& document) {
  const json& settings = document["settings"];
  Chart chart;
  chart.title =
      fmt::format("One access, {} of data, {:.0f}% near, one thread", format_size(settings["bytes"].get<uint64_t>()),
                  100 * settings["local_share"].get<double>());
  chart.unit = "microseconds, less is better";
  for (const Workload& workload : kWorkloads) chart.groups.push_back(workload.name);
  for (const std::string& configuration : configurations_in(document)) {
    if (configuration == kNative) continue;
    Chart::Series series{configuration, {}};
    for (const Workload& workload : kWorkloads)
      series.values.push_back(us_of(document, configuration, workload.name, 1));
    chart.series.push_back(series);
  }
  return chart;
}

}  // namespace farside::bench
