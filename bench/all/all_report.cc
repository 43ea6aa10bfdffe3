#include "bench/all/all_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "bench/all/workloads.h"
#include "measure/costs.h"
#include "measure/ideal.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Table = std::vector<std::vector<std::string>>;
using Series = LineChart::Series;

constexpr unsigned kAllNear = 100;
constexpr const char* kMeasured[] = {kFar, kPages, kHinted, kZram};
constexpr const char* kIdeal = "ideal";
// In a fixed order, so that a configuration has the same colour in every plot.
constexpr const char* kCurves[] = {kFar, kHinted, kIdeal, kZram, kNative, kPages};

const char* figure_of(const std::string& app) { return find_application(app)->figure; }

std::optional<double> figure(const json& document, const std::string& app, const std::string& configuration,
                             unsigned share) {
  return median_of(document, app, configuration, configuration == kNative ? kAllNear : share, figure_of(app));
}

// Relative to the native value.
std::optional<double> relative(const json& document, const std::string& app, const std::string& configuration,
                               unsigned share) {
  auto native = figure(document, app, kNative, share), measured = figure(document, app, configuration, share);
  if (!native || !measured) return std::nullopt;
  return *measured / *native;
}

bool was_run(const json& document, const std::string& app, const std::string& configuration) {
  for (const auto& [key, record] : document["runs"].items()) {
    if (key.starts_with(app + "/" + configuration + "/")) return true;
  }
  return false;
}

std::vector<std::string> configurations_run(const json& document, const std::string& app) {
  std::vector<std::string> configurations;
  for (const char* configuration : kMeasured) {
    if (was_run(document, app, configuration)) configurations.push_back(configuration);
  }
  return configurations;
}

std::string with_commas(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string percent(std::optional<double> share) { return share ? fmt::format("{:.0f}%", 100 * *share) : "-"; }

std::string ratio(std::optional<double> a, std::optional<double> b) {
  return a && b ? fmt::format("{:.2f}x", *a / *b) : "-";
}

std::string headline(const json& document, const std::string& app) {
  auto native = figure(document, app, kNative, kAllNear);
  std::string text = fmt::format("{}; {}: {}", app, figure_of(app),
                                 native ? fmt::format("native {}", with_commas(*native)) : "no native run");
  const json& traces = document["traces"];
  if (!traces.contains(app) || !traces[app].contains("coverage")) return text + "\n";
  return text + fmt::format("; {} hints, at {:.0f}% of the faults\n", traces[app]["hints"].get<size_t>(),
                            100 * traces[app]["coverage"].get<double>());
}

std::string throughput_table(const json& document, const std::string& app, const std::vector<unsigned>& shares) {
  std::vector<std::string> configurations = configurations_run(document, app);
  bool hinted = std::ranges::find(configurations, kHinted) != configurations.end();
  Table table = {{"near", "fetches", "ideal"}};
  for (const std::string& configuration : configurations) table[0].insert(table[0].end(), {configuration, "of native"});
  if (hinted) table[0].push_back("hinted / far");
  for (unsigned share : shares) {
    auto fetches = median_of(document, app, kFar, share, "fetches");
    std::vector<std::string> row = {fmt::format("{}%", share), fetches ? with_commas(*fetches) : "-",
                                    percent(ideal_throughput(document, app, share))};
    for (const std::string& configuration : configurations) {
      auto measured = figure(document, app, configuration, share);
      row.insert(row.end(),
                 {measured ? with_commas(*measured) : "-", percent(relative(document, app, configuration, share))});
    }
    if (hinted) row.push_back(ratio(figure(document, app, kHinted, share), figure(document, app, kFar, share)));
    table.push_back(row);
  }
  return format_table(table);
}

// "" for applications that do not measure latencies.
std::string latency_table(const json& document, const std::string& app, const std::vector<unsigned>& shares) {
  auto native = median_of(document, app, kNative, kAllNear, "p99_us");
  if (!native) return "";
  std::vector<std::string> configurations = configurations_run(document, app);
  Table table = {{"p99 us", "native"}};
  table[0].insert(table[0].end(), configurations.begin(), configurations.end());
  for (unsigned share : shares) {
    std::vector<std::string> row = {fmt::format("{}%", share), fmt::format("{:.1f}", *native)};
    for (const std::string& configuration : configurations) {
      auto p99 = median_of(document, app, configuration, share, "p99_us");
      row.push_back(p99 ? fmt::format("{:.1f}", *p99) : "-");
    }
    table.push_back(row);
  }
  return "\n" + format_table(table);
}

std::string costs_table(const json& document, const std::string& app, const std::vector<unsigned>& shares) {
  std::vector<CostRow> rows;
  for (unsigned share : shares) {
    for (const json& record : records(document, app, kFar, share)) {
      if (!record.contains("costs")) continue;
      rows.push_back({fmt::format("{}%", share), record["costs"]});
      break;
    }
  }
  std::string text = rows.empty() ? "" : costs_text("near", rows);
  return text.empty() ? "" : "\n" + text;
}

std::string lines(const char* heading, const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += fmt::format("{}: {}\n", heading, item);
  return text;
}

// ---- Charts ----

LineChart throughput_chart(const json& document, const std::string& app, const std::vector<unsigned>& shares) {
  LineChart chart{app, "% of its memory near", "% of native", 100, 100, {}};
  for (std::string configuration : kCurves) {
    Series series{configuration, {}};
    for (unsigned share : shares) {
      auto y = configuration == kIdeal ? ideal_throughput(document, app, share)
                                       : relative(document, app, configuration, share);
      if (!y) continue;
      series.points.emplace_back(share, 100 * *y);
      chart.y_max = std::max(chart.y_max, 100 * *y);
    }
    chart.series.push_back(series);
  }
  return chart;
}

// The unit of an axis.
struct Unit {
  double divisor;
  const char* name;
};
Unit unit_for(double largest) {
  if (largest >= 1e6) return {1e6, "million "};
  return largest >= 1e3 ? Unit{1e3, "thousand "} : Unit{1, ""};
}

// The first run of a configuration that has the member. A panel shows one run, not a mean.
std::optional<json> first_with(const json& document, const std::string& app, const std::string& configuration,
                               unsigned share, const char* member) {
  for (json& record : records(document, app, configuration, configuration == kNative ? kAllNear : share)) {
    if (record.contains(member)) return record[member];
  }
  return std::nullopt;
}

// One panel per share. points(member) converts the member of a run to a series.
template <typename Points>
std::vector<LineChart> panels(const json& document, const std::string& app, const std::vector<unsigned>& shares,
                              const char* member, Points points) {
  std::vector<LineChart> charts;
  for (unsigned share : shares) {
    LineChart chart{fmt::format("{}, {}% near", app, share), "", "", 0, 0, {}};
    for (const char* configuration : kCurves) {
      auto data = first_with(document, app, configuration, share, member);
      chart.series.push_back({configuration, data ? points(*data) : decltype(Series::points){}});
      for (auto [x, y] : chart.series.back().points) {
        chart.x_max = std::max(chart.x_max, x);
        chart.y_max = std::max(chart.y_max, y);
      }
    }
    if (chart.x_max > 0 && chart.y_max > 0) charts.push_back(chart);
  }
  return charts;
}

void scale(LineChart* chart, double x, double y) {
  chart->x_max /= x;
  chart->y_max /= y;
  for (Series& series : chart->series) {
    for (auto& point : series.points) point = {point.first / x, std::min(point.second / y, chart->y_max)};
  }
}

// Operations in each tenth of a second. The last, incomplete one is omitted.
std::vector<LineChart> timeline_charts(const json& document, const std::string& app,
                                       const std::vector<unsigned>& shares) {
  auto charts = panels(document, app, shares, "timeline", [](const json& tenths) {
    decltype(Series::points) points;
    for (size_t i = 0; i + 1 < tenths.size(); i++) {
      points.emplace_back((static_cast<double>(i) + 0.5) / 10, 10 * tenths[i].get<double>());
    }
    return points;
  });
  for (LineChart& chart : charts) {
    Unit unit = unit_for(chart.y_max);
    chart.x_label = "seconds";
    chart.y_label = fmt::format("{}operations/s", unit.name);
    scale(&chart, 1, unit.divisor);
  }
  return charts;
}

// Latency by achieved throughput. Beyond saturation latencies are unbounded; they are drawn at the top of the panel.
std::vector<LineChart> latency_charts(const json& document, const std::string& app,
                                      const std::vector<unsigned>& shares) {
  constexpr double kShown = 20;  // times the lowest latency
  auto charts = panels(document, app, shares, "curve", [](const json& curve) {
    decltype(Series::points) points;
    for (const json& at : curve) points.emplace_back(at["achieved"].get<double>(), at["p99_us"].get<double>());
    return points;
  });
  for (LineChart& chart : charts) {
    double smallest = chart.y_max;
    for (const Series& series : chart.series) {
      for (auto [x, y] : series.points) smallest = std::min(smallest, y);
    }
    chart.y_max = std::min(chart.y_max, kShown * smallest);
    Unit unit = unit_for(chart.x_max);
    chart.x_label = fmt::format("{}operations/s", unit.name);
    chart.y_label = "p99 us";
    scale(&chart, unit.divisor, 1);
  }
  return charts;
}

}  // namespace

std::optional<double> ideal_throughput(const json& document, const std::string& app, unsigned share) {
  const json* trip = document.contains("link") ? &document["link"]["round_trip_us"] : nullptr;
  auto fetches = median_of(document, app, kFar, share, "fetches");
  auto fill = median_of(document, app, kNative, kAllNear, "fill_s"),
       run = median_of(document, app, kNative, kAllNear, "run_s");
  if (!trip || !fetches || !fill || !run) return std::nullopt;
  return Ideal{*fill + *run, *trip}.throughput(static_cast<uint64_t>(*fetches));
}

std::string all_text(const json& document, const TaskList& list) {
  const json& settings = document["settings"];
  std::string text = machine_text(document["machine"]) + "\n";
  text += fmt::format("{} of data, {} threads, far memory over {}", format_size(settings["size"].get<uint64_t>()),
                      settings["threads"].get<unsigned>(), settings["transport"].get<std::string>());
  double added = settings["latency_us"];
  if (added > 0) text += fmt::format(" with {:g} us more", added);
  if (document.contains("link"))
    text += fmt::format(", {:.2f} us a page", document["link"]["round_trip_us"].get<double>());
  text +=
      "; medians, configurations in turn\nfetches: fetching faults of the busiest thread; ideal: share of native if a "
      "fetch cost that latency and nothing else\n";
  for (const std::string& app : list.apps) {
    if (!find_application(app) || !was_run(document, app, kNative)) continue;
    text += "\n" + headline(document, app) + throughput_table(document, app, list.shares) +
            latency_table(document, app, list.shares) + costs_table(document, app, list.shares);
  }
  text += "\n";
  for (const auto& [name, reason] : document["skipped"].items()) {
    text += fmt::format("{}: not run: {}\n", name, reason.get<std::string>());
  }
  return text + lines("note", notes_of(document)) + lines("problem", problems_of(document));
}

std::map<std::string, std::vector<LineChart>> all_charts(const json& document, const TaskList& list) {
  std::map<std::string, std::vector<LineChart>> charts;
  for (const std::string& app : list.apps) {
    if (!find_application(app) || !was_run(document, app, kNative)) continue;
    charts[app + ".svg"] = {throughput_chart(document, app, list.shares)};
    charts[app + "_timeline.svg"] = timeline_charts(document, app, list.shares);
    charts[app + "_latency.svg"] = latency_charts(document, app, list.shares);
  }
  std::erase_if(charts, [](const auto& entry) { return entry.second.empty(); });
  return charts;
}

}  // namespace farside::bench
