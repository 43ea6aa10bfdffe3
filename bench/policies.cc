#include "bench/policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "abi/page_trace.h"
#include "pager/policy/published.h"
#include "pager/policy/simulator.h"
#include "report/format.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using pager::Known;
using pager::Outcome;
using pager::PageIndex;
using pager::Trace;
using pager::Uses;

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

Candidate of_published(const char* name, Outcome (*simulate)(const Trace&, uint64_t, Uses), Uses uses) {
  return {name, false, [=](const Trace& t, uint64_t near) { return simulate(t, near, uses); }};
}

constexpr const char* kOptimum = "optimum";

const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      of_policy("2q", PolicyKind::kTwoQueue, Known::kFaults),
      of_policy("2q, hints", PolicyKind::kTwoQueue, Known::kUses, false),
      of_policy("fifo", PolicyKind::kFifo, Known::kFaults),
      of_policy("lru", PolicyKind::kLru, Known::kFaults),
      of_policy("lru, hints", PolicyKind::kLru, Known::kUses),
      of_policy("priority, hints", PolicyKind::kPriority, Known::kPriority),
      {"kernel's lists", false, pager::simulate_kernel_lists},
      of_published("ARC", pager::simulate_arc, Uses::kSeen),
      of_published("ARC, faults", pager::simulate_arc, Uses::kHidden),
      of_published("S3-FIFO", pager::simulate_s3_fifo, Uses::kSeen),
      of_published("S3-FIFO, faults", pager::simulate_s3_fifo, Uses::kHidden),
      {"exact LRU", true, pager::simulate_exact_lru},
      {kOptimum, true, pager::simulate_optimum},
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

Result<std::vector<Trace>> read_traces(const std::vector<std::string>& files) {
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    Result<PageTrace> read = read_page_trace(file);
    if (!read.ok()) return read.status();
    auto pages = static_cast<PageIndex>(read->header.pages);
    traces.push_back(
        {std::filesystem::path(file).stem(), pages, pages, {read->accesses.begin(), read->accesses.end()}});
  }
  return traces;
}

uint64_t distinct_pages(const Trace& trace) {
  std::vector<bool> seen(trace.pages);
  for (PageIndex page : trace.accesses) seen[page] = true;
  return static_cast<uint64_t>(std::ranges::count(seen, true));
}

json point_of(uint64_t distinct, const Outcome& o, unsigned share) {
  auto accesses = static_cast<double>(o.hits + o.misses);
  double misses = static_cast<double>(o.misses) / accesses, soft = static_cast<double>(o.soft_faults) / accesses;
  return {{"near", share},
          {"hits", 100 * o.hit_rate()},
          {"soft_faults", 100 * soft},
          {"fetches", o.misses - distinct},
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

// The fetches of a curve's point as a multiple of the optimum's. Both count one more: the optimum may need none.
double relative_fetches(const json& trace, const json& curve, size_t point) {
  auto optimum = std::ranges::find_if(trace["curves"], [](const json& c) { return c["policy"] == kOptimum; });
  return (1 + curve["points"][point]["fetches"].get<double>()) /
         (1 + (*optimum)["points"][point]["fetches"].get<double>());
}

// Geometric means over the traces.
std::string means_of(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"all: fetches, in multiples of the optimum's"}};
  const json& traces = document["traces"];
  for (const json& point : traces[0]["curves"][0]["points"])
    rows[0].push_back(fmt::format("{}% near", point["near"].get<unsigned>()));
  for (size_t c = 0; c < traces[0]["curves"].size(); c++) {
    rows.push_back({traces[0]["curves"][c]["policy"]});
    for (size_t p = 0; p < traces[0]["curves"][c]["points"].size(); p++) {
      double sum = 0;
      for (const json& trace : traces) sum += std::log(relative_fetches(trace, trace["curves"][c], p));
      rows.back().push_back(fmt::format("{:.2f}", std::exp(sum / static_cast<double>(traces.size()))));
    }
  }
  return format_table(rows) + "\n";
}

std::string recorded_text(const json& document) {
  std::string text;
  for (const json& trace : document["traces"]) {
    std::string head =
        fmt::format("{}: fetches of {} pages", trace["name"].get<std::string>(), trace["pages"].get<uint64_t>());
    text += table_of(trace, head, "fetches", "{:.0f}");
  }
  return text + means_of(document);
}

}  // namespace

Result<json> measure_policies(const PoliciesSettings& s) {
  json document = {
      {"settings",
       {{"pages", s.pages}, {"accesses", s.accesses}, {"seed", s.seed}, {"shares", s.shares}, {"traces", s.traces}}}};
  Result<std::vector<Trace>> traces = s.traces.empty() ? make_traces(s) : read_traces(s.traces);
  if (!traces.ok()) return traces.status();
  Progress progress(traces->size(), s.quiet);
  for (const Trace& trace : *traces) {
    progress.step(trace.name);
    json curves = json::array();
    uint64_t distinct = distinct_pages(trace);
    for (const Candidate& c : candidates()) {
      json points = json::array();
      for (unsigned share : s.shares) {
        uint64_t near = std::max<uint64_t>(uint64_t{trace.pages} * share / 100, 1);
        points.push_back(point_of(distinct, c.simulate(trace, near), share));
      }
      curves.push_back({{"policy", c.name}, {"points", points}});
    }
    document["traces"].push_back({{"name", trace.name}, {"pages", trace.pages}, {"curves", curves}});
  }
  return document;
}

std::string policies_text(const json& document) {
  if (!document["settings"]["traces"].empty()) return recorded_text(document);
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
