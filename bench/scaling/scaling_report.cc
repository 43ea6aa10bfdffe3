// The tables and plots of `farside bench scaling`, made from its JSON document.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "bench/scaling/scaling.h"
#include "measure/statistics.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench::scaling {
namespace {

using nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;

std::string millions(const json& row) { return fmt::format("{:.2f}", row["pages_per_s"].get<double>() / 1e6); }
std::string us(const json& value) { return fmt::format("{:.2f}", value.get<double>()); }
std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

// The busiest shared resources, as "signal lock 100%, mapping 27%".
std::string busiest(const json& row, size_t count) {
  std::string text;
  for (const json& use : row["busy"]) {
    if (count-- == 0 || use["busy"] < 0.1) break;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", use["name"].get<std::string>(), percent(use["busy"]));
  }
  return text;
}

std::string validation_text(const json& document) {
  Rows rows = {{"this machine: us per access", "over", "cores", "threads", "measured", "simulated", "error"}};
  for (const json& row : document["validation"]) {
    rows.push_back({row["workload"], row["tier"], std::to_string(row["cores"].get<int>()),
                    std::to_string(row["threads"].get<int>()), us(row["measured_us"]), us(row["simulated_us"]),
                    fmt::format("{:+.0f}%", 100 * row["error"].get<double>())});
  }
  std::string text = format_table(rows);
  for (const json& row : document["validation"]) {
    if (!row.contains("miss")) continue;
    text += fmt::format("random read miss: median measured {}, simulated {}; p99 measured {}, simulated {} us\n",
                        us(row["miss"]["measured_median_us"]), us(row["simulated"]["p50_us"]),
                        us(row["miss"]["measured_p99_us"]), us(row["simulated"]["p99_us"]));
  }
  return text + "\n";
}

// One table per design and workload: a row per number of threads, two columns per number of evictors.
std::string threads_text(const json& document) {
  std::map<std::string, std::map<unsigned, std::map<unsigned, json>>> tables;
  std::vector<std::string> order;
  for (const json& row : document["threads"]) {
    std::string name = fmt::format("{}, {}", row["workload"].get<std::string>(), row["design"].get<std::string>());
    if (!tables.contains(name)) order.push_back(name);
    tables[name][row["threads"]][row["evictors"]] = row;
  }
  std::string text;
  for (const std::string& name : order) {
    Rows rows = {{name + ": threads"}};
    for (const auto& [evictors, row] : tables[name].begin()->second) {
      rows[0].push_back(fmt::format("{} evictors: M pages/s", evictors));
      rows[0].push_back("p99 us");
    }
    for (const auto& [threads, by_evictors] : tables[name]) {
      rows.push_back({std::to_string(threads)});
      for (const auto& [evictors, row] : by_evictors) {
        rows.back().push_back(millions(row));
        rows.back().push_back(fmt::format("{:.1f}", row["p99_us"].get<double>()));
      }
    }
    text += format_table(rows) + "\n";
  }
  return text;
}

std::string batches_text(const json& document) {
  Rows rows = {{"48 threads, 4 evictors, hinted: batch", "in flight", "M pages/s", "p99 us", "evictors busy"}};
  for (const json& row : document["batches"]) {
    rows.push_back({fmt::format("{}: {}", row["workload"].get<std::string>(), row["batch"].get<unsigned>()),
                    std::to_string(row["in_flight"].get<unsigned>()), millions(row), us(row["p99_us"]),
                    percent(row["evictors_busy"])});
  }
  return format_table(rows) + "\n";
}

std::string breakdown_text(const json& document) {
  Rows rows = {{"random read: us per fault"}};
  for (const json& row : document["breakdown"]) {
    rows[0].push_back(fmt::format("{} {}", row["threads"].get<unsigned>(), row["design"].get<std::string>()));
  }
  for (size_t i = 0; i < kPhases; i++) {
    rows.push_back({phase_name(static_cast<Phase>(i))});
    for (const json& row : document["breakdown"]) rows.back().push_back(us(row["phases"][rows.back()[0]]));
  }
  return format_table(rows) + "\n";
}

std::string changes_text(const json& document) {
  std::string text;
  for (const json& set : document["changes"]) {
    std::string workload = set["workload"];
    Rows rows = {{workload + ", 48 threads", "M pages/s", "p99 us", "busiest"}};
    auto add = [&](const std::string& name, const json& row) {
      rows.push_back({name, millions(row), us(row["p99_us"]), busiest(row, 3)});
    };
    add("before", set["base"]);
    for (const json& row : set["alone"]) add("alone: " + row["name"].get<std::string>(), row);
    for (const json& row : set["sequence"]) add("then: " + row["name"].get<std::string>(), row);
    add("hinted, before", set["hinted"]);
    for (const json& row : set["hinted_sequence"]) add("then: " + row["name"].get<std::string>(), row);
    text += format_table(rows) + "\n";
  }
  return text;
}

std::string sensitivity_text(const json& document) {
  Rows rows = {{"random read, 48 threads, M pages/s", "before", "as it is", "hinted"}};
  for (const json& row : document["sensitivity"]) {
    rows.push_back({row["name"], millions(row["before"]), millions(row["as it is"]), millions(row["hinted"])});
  }
  return format_table(rows) + "\n";
}

std::string others_text(const json& document) {
  Rows rows = {{"random read: design", "threads", "M pages/s", "mean us", "p99 us", "busiest"}};
  for (const json& row : document["others"]) {
    rows.push_back({row["design"], std::to_string(row["threads"].get<unsigned>()), millions(row), us(row["mean_us"]),
                    us(row["p99_us"]), busiest(row, 2)});
  }
  return format_table(rows);
}

// What is used most is what limits.
std::string tiers_text(const json& document) {
  if (document["tiers"].empty()) return "";
  Rows rows = {{"tiers", "cores", "threads", "waiting", "pages", "M pages/s", "Gbit/s", "p99 us", "busiest"}};
  for (const json& row : document["tiers"]) {
    bool frames = row["frame_pages"] > 1;
    rows.push_back({fmt::format("{}, {}", row["tier"].get<std::string>(), row["workload"].get<std::string>()),
                    std::to_string(row["cores"].get<unsigned>()), std::to_string(row["threads"].get<unsigned>()),
                    row["wait"], frames ? "2 MiB" : "4 KiB", millions(row),
                    fmt::format("{:.0f}", row["pages_per_s"].get<double>() * 4096 * 8 / 1e9), us(row["p99_us"]),
                    busiest(row, 2)});
  }
  return "\n" + format_table(rows);
}

// ---- Plots ----

using Points = std::vector<std::pair<double, double>>;

// The end of an axis with four steps, each a round number.
double round_end(double largest) {
  double unit = std::pow(10, std::floor(std::log10(largest / 4)));
  for (double step : {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0}) {
    if (4 * step * unit >= largest) return 4 * step * unit;
  }
  return largest;
}

// One series per value of `series`, over `x`, of the rows for which wanted(row) is true.
LineChart line_chart(const json& rows, const std::string& title, const char* series, const char* x, const char* x_label,
                     const char* y_label, const std::function<bool(const json&)>& wanted,
                     const std::function<double(const json&)>& y) {
  std::map<unsigned, Points> lines;
  LineChart chart = {title, x_label, y_label, 1, 1e-3, {}};
  for (const json& row : rows) {
    if (!wanted(row)) continue;
    lines[row[series]].push_back({row[x].get<double>(), y(row)});
    chart.x_max = std::max(chart.x_max, row[x].get<double>());
    chart.y_max = std::max(chart.y_max, y(row));
  }
  chart.y_max = round_end(chart.y_max);
  for (auto& [name, points] : lines) chart.series.push_back({fmt::format("{}", name), points});
  return chart;
}

double millions_of(const json& row) { return row["pages_per_s"].get<double>() / 1e6; }
double p99_of(const json& row) { return row["p99_us"]; }

std::vector<LineChart> thread_charts(const json& document) {
  std::vector<LineChart> charts;
  for (const char* design : {"before", "as it is", "hinted"}) {
    auto wanted = [&](const json& row) { return row["design"] == design && row["workload"] == "random read"; };
    auto add = [&](const char* label, double (*y)(const json&)) {
      charts.push_back(line_chart(document["threads"], fmt::format("random read, {}", design), "evictors", "threads",
                                  "threads", label, wanted, y));
      for (auto& series : charts.back().series) series.name += series.name == "1" ? " evictor" : " evictors";
    };
    add("million pages a second", millions_of);
    add("p99 of a fault, us", p99_of);
  }
  return charts;
}

std::vector<LineChart> batch_charts(const json& document) {
  std::vector<LineChart> charts;
  for (const char* workload : {"random read", "random write"}) {
    auto wanted = [&](const json& row) { return row["workload"] == workload; };
    charts.push_back(line_chart(document["batches"], fmt::format("{}, 48 threads, 4 evictors", workload), "in_flight",
                                "batch", "pages a batch", "million pages a second", wanted, millions_of));
    for (auto& series : charts.back().series) series.name += " in flight";
  }
  return charts;
}

// Phases that take less than a quarter of a microsecond in all designs are omitted.
Chart breakdown_chart(const json& document) {
  constexpr double kMin = 0.25;
  Chart chart = {"Where the time of a random read fault goes, 48 threads", "us", {}, {}};
  std::vector<json> rows;
  for (const json& row : document["breakdown"]) {
    if (row["threads"] == 48) rows.push_back(row);
  }
  for (size_t i = 0; i < kPhases; i++) {
    std::string phase = phase_name(static_cast<Phase>(i));
    if (std::any_of(rows.begin(), rows.end(), [&](const json& r) { return r["phases"][phase] >= kMin; }))
      chart.groups.push_back(phase);
  }
  for (const json& row : rows) {
    chart.series.push_back({row["design"], {}});
    for (const std::string& phase : chart.groups) chart.series.back().values.push_back(row["phases"][phase]);
  }
  return chart;
}

}  // namespace

std::string scaling_text(const json& document) {
  return machine_text(document["machine"]) + "\n\n" + validation_text(document) + threads_text(document) +
         batches_text(document) + breakdown_text(document) + changes_text(document) + sensitivity_text(document) +
         others_text(document) + tiers_text(document);
}

std::vector<std::pair<std::string, std::string>> scaling_plots(const json& document) {
  return {{"scaling_threads.svg", to_svg(thread_charts(document))},
          {"scaling_batches.svg", to_svg(batch_charts(document))},
          {"scaling_breakdown.svg", to_svg(breakdown_chart(document))}};
}

}  // namespace farside::bench::scaling
