#include "tools/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "measure/fault_costs.h"
#include "measure/ideal.h"
#include "measure/statistics.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::plan {
namespace {

using nlohmann::json;
using Table = std::vector<std::vector<std::string>>;

double native_s(const json& document) { return document["native_s"]["median"]; }
double measured_s(const json& point) { return point["seconds"]["median"]; }
uint64_t fetches(const json& point) { return point["fetches"]; }

Ideal over_link(const json& document) { return {native_s(document), document["round_trip_us"]}; }

std::vector<Ideal> over_other_links(const json& document) {
  std::vector<Ideal> ideals;
  for (const json& us : document["settings"]["latencies_us"]) ideals.push_back({native_s(document), us});
  return ideals;
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }
std::string near_text(const json& point) { return format_size(point["costs"]["near_bytes"].get<uint64_t>()); }
std::string share_text(const json& point) { return fmt::format("{}%", point["share"].get<unsigned>()); }

// Throughput in percent of native.
std::string throughput_table(const json& document) {
  Ideal ideal = over_link(document);
  std::vector<Ideal> others = over_other_links(document);
  Table table = {{"near", "of the heap", "fetches of the busiest thread", "ideal"}};
  for (const Ideal& other : others) table[0].push_back(fmt::format("ideal {:g} us", other.latency_us));
  table[0].insert(table[0].end(), {"measured", "gap"});
  for (const json& point : document["points"]) {
    double best = ideal.throughput(fetches(point)), measured = native_s(document) / measured_s(point);
    std::vector<std::string> row = {share_text(point), near_text(point), std::to_string(fetches(point)), percent(best)};
    for (const Ideal& other : others) row.push_back(percent(other.throughput(fetches(point))));
    row.insert(row.end(), {percent(measured), percent(best - measured)});
    table.push_back(row);
  }
  return format_table(table);
}

// Seconds between ideal and measured: time in faults of the busiest thread beyond that of the link, and the rest.
std::string gap_table(const json& document) {
  Ideal ideal = over_link(document);
  Table table = {{"gap, seconds", "in all", "in the busiest thread's faults", "elsewhere"}};
  for (const json& point : document["points"]) {
    double gap = measured_s(point) - ideal.seconds(fetches(point));
    double on_link = ideal.seconds(fetches(point)) - ideal.local_s;
    double in_faults = std::max(0.0, point["costs"]["busiest_s"].get<double>() - on_link);
    table.push_back({share_text(point), fmt::format("{:.3f}", gap), fmt::format("{:.3f}", in_faults),
                     fmt::format("{:.3f}", gap - in_faults)});
  }
  return format_table(table);
}

std::vector<CostRow> cost_rows(const json& document) {
  std::vector<CostRow> rows;
  for (const json& point : document["points"]) rows.push_back({share_text(point), point["costs"]});
  return rows;
}

// How far down the points are within the limit.
std::string down_to(const json& document, const std::vector<Timed>& points, double limit) {
  std::optional<unsigned> share = smallest_within(points, limit);
  if (!share) {
    const Timed& largest = points.back();
    return fmt::format("with none of the shares measured ({}% near is {:.0f}% slower)", largest.share,
                       100 * (largest.seconds / native_s(document) - 1));
  }
  for (const json& point : document["points"]) {
    if (point["share"] == *share) {
      return fmt::format("down to {}% near ({})", *share, near_text(point));
    }
  }
  return "";
}

double slowest_s(const json& document) {
  return (1 + document["settings"]["slowdown"].get<double>()) * native_s(document);
}

std::vector<Timed> measured_points(const json& document) {
  std::vector<Timed> points;
  for (const json& point : document["points"]) points.push_back({point["share"], measured_s(point)});
  return points;
}

std::string answer(const json& document) {
  double slowdown = document["settings"]["slowdown"], limit = slowest_s(document);
  std::vector<Timed> measured = measured_points(document), best;
  for (const json& point : document["points"])
    best.push_back({point["share"], over_link(document).seconds(fetches(point))});
  bool may_be_noise = !smallest_within(measured, limit) && document["settings"]["repetitions"] == 1;
  return fmt::format("At most {:.3g}% slower than native: {}; an ideal system over this link: {}.{}\n", 100 * slowdown,
                     down_to(document, measured, limit), down_to(document, best, limit),
                     may_be_noise ? " Each ran once; --repeat 3 evens out other work on the machine." : "");
}

}  // namespace

std::optional<unsigned> smallest_within(const std::vector<Timed>& points, double limit) {
  std::optional<unsigned> smallest;
  for (auto point = points.rbegin(); point != points.rend() && point->seconds <= limit; point++)
    smallest = point->share;
  return smallest;
}

std::string plan_text(const json& document) {
  std::string text = machine_text(document["machine"]) + "\n";
  text +=
      fmt::format("native {:.3f} s; a page over {} takes {:.2f} us; medians of {} runs, throughput in % of native\n\n",
                  native_s(document), document["transport"].get<std::string>(), document["round_trip_us"].get<double>(),
                  document["settings"]["repetitions"].get<unsigned>());
  text += throughput_table(document) + "\n" + gap_table(document) + "\n";
  std::string costs = costs_text("near", cost_rows(document));
  text += costs + (costs.empty() ? "" : "\n") + answer(document);
  return document.value("complete", true)
             ? text
             : text + "Stopped by a signal: larger shares or repetitions were not measured.\n";
}

std::vector<LineChart::Series> answer_lines(const json& document, std::optional<double> share) {
  double slowdown = document["settings"]["slowdown"], wanted = 100 / (1 + slowdown);
  std::vector<LineChart::Series> lines = {
      {fmt::format("at most {:.3g}% slower", 100 * slowdown), {{0, wanted}, {100, wanted}}}};
  if (share) lines.push_back({fmt::format("answer: {:.0f}% near", *share), {{*share, 0}, {*share, wanted}}});
  return lines;
}

std::vector<LineChart> plan_chart(const json& document) {
  using Series = LineChart::Series;
  LineChart chart{"Throughput by share of near memory", "% of the heap near", "% of native", 100, 100, {}};
  auto add = [&](const std::string& name, auto value) {
    Series series{name, {}};
    for (const json& point : document["points"]) {
      series.points.emplace_back(point["share"].get<double>(), 100 * value(point));
      chart.y_max = std::max(chart.y_max, series.points.back().second);
    }
    chart.series.push_back(series);
  };
  add("measured", [&](const json& point) { return native_s(document) / measured_s(point); });
  add("ideal", [&](const json& point) { return over_link(document).throughput(fetches(point)); });
  for (const Ideal& other : over_other_links(document)) {
    add(fmt::format("ideal {:g} us", other.latency_us),
        [&](const json& point) { return other.throughput(fetches(point)); });
  }
  std::vector<Series> lines = answer_lines(document, smallest_within(measured_points(document), slowest_s(document)));
  chart.series.insert(chart.series.end(), lines.begin(), lines.end());
  return {chart};
}

}  // namespace farside::plan
