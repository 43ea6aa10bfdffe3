// `farside bench policies`: simulates, on synthetic or recorded traces, which pages each policy keeps near. Nothing is
// timed or paged; the same seed gives the same results on every machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "abi/page_trace.h"
#include "bench/runner/report.h"
#include "bench/suites.h"
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

struct Synthetic {
  const char* name;
  Trace (*make)(const Settings& s);
};
constexpr Synthetic kSynthetic[] = {
    {"zipf 0.80", [](const Settings& s) { return pager::zipf_trace(s.pages, 0.8, s.accesses, s.seed); }},
    {"zipf 0.99", [](const Settings& s) { return pager::zipf_trace(s.pages, 0.99, s.accesses, s.seed + 1); }},
    {"scan + zipf 0.99",
     [](const Settings& s) { return pager::scan_zipf_trace(s.pages, 0.99, s.accesses, s.seed + 2); }},
    {"loop", [](const Settings& s) { return pager::loop_trace(s.pages, s.accesses); }},
    {"phases", [](const Settings& s) { return pager::phases_trace(s.pages, 7, s.accesses, s.seed + 3); }},
    {"hot set beside a stream",
     [](const Settings& s) { return pager::hot_stream_trace(s.pages, s.pages / 5, 50, 10 * s.accesses, s.seed + 4); }},
};

Result<Trace> read_trace(const std::string& file) {
  Result<PageTrace> read = read_page_trace(file);
  if (!read.ok()) return read.status();
  auto pages = static_cast<PageIndex>(read->header.pages);
  return Trace{std::filesystem::path(file).stem(), pages, pages, {read->accesses.begin(), read->accesses.end()}};
}

uint64_t distinct_pages(const Trace& trace) {
  std::vector<bool> seen(trace.pages);
  for (PageIndex page : trace.accesses) seen[page] = true;
  return static_cast<uint64_t>(std::ranges::count(seen, true));
}

json figures_of(uint64_t distinct, const Outcome& o) {
  auto accesses = static_cast<double>(o.hits + o.misses);
  double misses = static_cast<double>(o.misses) / accesses, soft = static_cast<double>(o.soft_faults) / accesses;
  return {{"hits", 100 * o.hit_rate()},
          {"miss_ratio", 100 - 100 * o.hit_rate()},
          {"soft_faults", 100 * soft},
          {"fetches", o.misses - distinct},
          {"shm_us", misses * kMissShmUs + soft * kSoftUs},
          {"tcp_us", misses * kMissTcpUs + soft * kSoftUs}};
}

json simulate(const Trace& trace, const std::vector<unsigned>& shares) {
  json rows = json::array();
  uint64_t distinct = distinct_pages(trace);
  for (const Candidate& c : candidates()) {
    for (unsigned share : shares) {
      uint64_t near = std::max<uint64_t>(uint64_t{trace.pages} * share / 100, 1);
      rows.push_back(make_row({{"policy", c.name}, {"near", share}}, figures_of(distinct, c.simulate(trace, near))));
    }
  }
  return rows;
}

Result<json> simulate_synthetic(const Setup& setup, const Synthetic& trace) {
  return simulate(trace.make(setup.settings()), setup.settings().shares);
}

Result<json> simulate_recorded(const Setup& setup, const std::string& file) {
  Result<Trace> trace = read_trace(file);
  if (!trace.ok()) return trace.status();
  json rows = simulate(*trace, setup.settings().shares);
  for (json& row : rows) row["key"].update({{"trace", trace->name}, {"recorded", trace->pages}});
  return rows;
}

std::vector<Measurement> measurements(const Setup& setup) {
  const auto& files = setup.settings().traces;
  if (files.empty()) return measure_each(setup, simulate_synthetic, Axis{"trace", kSynthetic});
  std::vector<Measurement> all;
  for (const std::string& file : files)
    all.push_back({.key = {}, .name = file, .run = [&setup, file] { return simulate_recorded(setup, file); }});
  return all;
}

// The fetches of recorded traces as multiples of the optimum's: geometric means over the traces. Both count one more,
// because the optimum may need none.
std::string means_text(const json& rows) {
  std::map<std::string, std::map<unsigned, std::pair<double, unsigned>>> logs;  // by policy and share: sum and number
  for (const json& row : rows) {
    if (!row.contains("recorded")) continue;
    json key = {{"trace", row["trace"]}, {"near", row["near"]}, {"policy", kOptimum}};
    auto optimum = std::ranges::find_if(rows, [&](const json& other) { return has_members(other, key); });
    auto& [sum, count] = logs[row["policy"]][row["near"]];
    sum += std::log((1 + *figure_of(row, "fetches")) / (1 + *figure_of(*optimum, "fetches")));
    count++;
  }
  if (logs.empty()) return "";
  std::vector<std::vector<std::string>> lines = {{"all: fetches, in multiples of the optimum's"}};
  for (const auto& [share, unused] : logs.begin()->second) lines[0].push_back(fmt::format("{}% near", share));
  for (const Candidate& c : candidates()) {
    lines.push_back({c.name});
    for (const auto& [share, log] : logs[c.name])
      lines.back().push_back(fmt::format("{:.2f}", std::exp(log.first / log.second)));
  }
  return format_table(lines) + "\n";
}

std::vector<std::string> charted() {
  std::vector<std::string> names;
  for (const Candidate& c : candidates()) {
    if (c.in_chart) names.emplace_back(c.name);
  }
  return names;
}

Table by_share(const char* head, const char* figure, int digits) {
  return table(head, {"trace", "policy"}, {col("% near", figure, digits)}).by("near");
}

}  // namespace

Suite policies_suite() {
  return {.name = "policies",
          .measurements = measurements,
          .tables = {by_share("% hits", "hits", 1), by_share("us per access over shm", "shm_us", 2),
                     by_share("us per access over tcp", "tcp_us", 2), by_share("fetches", "fetches", 0)},
          .charts = {chart("", "% of the pages near", "% misses", "near", {"miss_ratio"}, {"policy"})
                         .by({"trace"})
                         .of({{"policy", charted()}})
                         .up_to(100, 100)},
          .more_text = means_text};
}

}  // namespace farside::bench
