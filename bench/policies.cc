#include "bench/policies.h"

#include <fmt/format.h>

#include <functional>

#include "pager/policy/simulator.h"
#include "report/format.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using pager::Known;
using pager::Outcome;
using pager::Trace;

// Assumed cost of a fault, in us. A soft fault is a signal and a mapping without a fetch. The values are rounded:
// `bench paging` measured misses of 7 us (shm) and 19 us (tcp) on an idle machine.
constexpr double kSoftUs = 3, kMissShmUs = 6, kMissTcpUs = 15;

struct Candidate {
  const char* name;
  bool in_chart;
  std::function<Outcome(const Trace&, uint64_t near)> simulate;
};

Candidate of_policy(const char* name, PolicyKind kind, Known known, bool in_chart = true) {
  return {name, in_chart, [=](const Trace& t, uint64_t near) { return simulate_policy(t, near, kind, known); }};
}

Candidate of_probation(const char* name, double share) {
  return {name, false, [=](const Trace& t, uint64_t near) { return simulate_probation(t, near, share); }};
}

const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      of_policy("2q", PolicyKind::kTwoQueue, Known::kFaults),
      of_policy("2q, hints", PolicyKind::kTwoQueue, Known::kUses, false),
      of_policy("fifo", PolicyKind::kFifo, Known::kFaults),
      of_policy("second-chance", PolicyKind::kSecondChance, Known::kFaults, false),
      of_policy("second-chance, hints", PolicyKind::kSecondChance, Known::kUses),
      of_policy("lru", PolicyKind::kLru, Known::kFaults),
      of_policy("lru, hints", PolicyKind::kLru, Known::kUses),
      of_policy("priority, hints", PolicyKind::kPriority, Known::kPriority),
      {"exact LRU", true, pager::simulate_exact_lru},
      {"optimum", true, pager::simulate_optimum},
      of_probation("probation 10%", 0.1),
      of_probation("probation 20%", 0.2),
      of_probation("probation 30%", 0.3),
  };
  return all;
}

std::vector<Trace> make_traces(const PoliciesSettings& s) {
  return {pager::zipf_trace(s.pages, 0.8, s.accesses, s.seed),
          pager::zipf_trace(s.pages, 0.99, s.accesses, s.seed + 1),
          pager::scan_zipf_trace(s.pages, 0.99, s.accesses, s.seed + 2),
          pager::loop_trace(s.pages, s.accesses),
          pager::phases_trace(s.pages, 7, s.accesses, s.seed + 3),
          pager::hot_stream_trace(s.pages, s.pages / 5, 50, 10 * s.accesses, s.seed + 4)};
}

json point_of(const Outcome& o, unsigned share) {
  auto accesses = static_cast<double>(o.hits + o.misses);
  double misses = static_cast<double>(o.misses) / accesses, soft = static_cast<double>(o.soft_faults) / accesses;
  return {{"near", share},
          {"hits", 100 * o.hit_rate()},
          {"soft_faults", 100 * soft},
          {"shm_us", misses * kMissShmUs + soft * kSoftUs},
          {"tcp_us", misses * kMissTcpUs + soft * kSoftUs}};
}

// One table: a row per candidate, a column per share of near memory.
std::string table_of(const json& trace, const std::string& head, const std::string& field, const char* format) {
  std::vector<std::vector<std::string>> rows = {{head}};
  for (const json& point : trace["curves"][0]["points"])
    rows[0].push_back(fmt::format("{}% near", point["near"].get<unsigned>()));
  for (const json& curve : trace["curves"]) {
    rows.push_back({curve["policy"]});
    for (const json& point : curve["points"]) {
      rows.back().push_back(fmt::format(fmt::runtime(format), point[field].get<double>()));
    }
  }
  return format_table(rows) + "\n";
}

}  // namespace

json measure_policies(const PoliciesSettings& s) {
  json document = {
      {"settings", {{"pages", s.pages}, {"accesses", s.accesses}, {"seed", s.seed}, {"shares", s.shares}}}};
  std::vector<Trace> traces = make_traces(s);
  Progress progress(traces.size(), s.quiet);
  for (const Trace& trace : traces) {
    progress.step(trace.name);
    json curves = json::array();
    for (const Candidate& c : candidates()) {
      json points = json::array();
      for (unsigned share : s.shares) {
        points.push_back(point_of(c.simulate(trace, std::max<uint64_t>(uint64_t{s.pages} * share / 100, 1)), share));
      }
      curves.push_back({{"policy", c.name}, {"points", points}});
    }
    document["traces"].push_back({{"name", trace.name}, {"curves", curves}});
  }
  return document;
}

std::string policies_text(const json& document) {
  std::string text;
  for (const json& trace : document["traces"]) {
    std::string name = trace["name"];
    text += table_of(trace, name + ": % hits", "hits", "{:.1f}");
    text += table_of(trace, name + ": us per access over shm", "shm_us", "{:.2f}");
    text += table_of(trace, name + ": us per access over tcp", "tcp_us", "{:.2f}");
  }
  return text;
}

std::vector<LineChart> policies_charts(const json& document) {
  std::vector<LineChart> charts;
  for (const json& trace : document["traces"]) {
    LineChart chart{trace["name"].get<std::string>(), "% of the pages near", "% misses", 100, 100, {}};
    for (size_t i = 0; i < candidates().size(); i++) {
      if (!candidates()[i].in_chart) continue;
      LineChart::Series series{candidates()[i].name, {}};
      for (const json& p : trace["curves"][i]["points"])
        series.points.emplace_back(p["near"].get<double>(), 100 - p["hits"].get<double>());
      chart.series.push_back(series);
    }
    charts.push_back(chart);
  }
  return charts;
}

}  // namespace farside::bench
