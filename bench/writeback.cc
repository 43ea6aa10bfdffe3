#include "bench/writeback.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "measure/far_memory.h"
#include "measure/process.h"
#include "measure/statistics.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr uint64_t kLineWords = kCacheLine / 8;
constexpr unsigned kLines[] = {1, 2, 4, 8, 16, 32, 64};

struct Link {
  const char* name;
  bool tcp;
  const char* query;  // appended to the shm address
};
constexpr Link kLinks[] = {{"shm, 10 Gbit/s", false, "?gbps=10"}, {"tcp", true, ""}};

struct Mode {
  const char* name;
  WriteBack mode;
};
constexpr Mode kModes[] = {{"page", WriteBack::kPage}, {"line", WriteBack::kLine}, {"auto", WriteBack::kAuto}};

// Which lines of each page are changed.
struct Pattern {
  bool alternate;
  unsigned lines;
  const char* name() const { return alternate ? "alternate" : "contiguous"; }
};

std::vector<Pattern> patterns() {
  std::vector<Pattern> all;
  for (unsigned lines : kLines) all.push_back({false, lines});
  for (unsigned lines : kLines) {
    if (lines > 1 && lines <= 32) all.push_back({true, lines});
  }
  return all;
}

// A phase of eviction whose time per page is reported.
struct Phase {
  const char* name;
  Counter counter;
};
constexpr Phase kPhases[] = {{"select", Counter::kSelectTicks}, {"hold", Counter::kHoldTicks},
                             {"unmap", Counter::kUnmapTicks},   {"compare", Counter::kCompareTicks},
                             {"send", Counter::kWriteTicks},    {"release", Counter::kReleaseTicks}};

class Cell {
 public:
  Cell(FarMemory& far, uint64_t bytes, Pattern pattern, uint64_t round)
      : far_(far), arena_(far.arena()), bytes_(bytes), pattern_(pattern), round_(round) {}

  json run() {
    far_.pager().set_local({3 * bytes_ + 64 * kMiB, 0});
    for_each_page([this](uint64_t page) { check(page); });
    uint64_t start = now_ns();
    for_each_page([this](uint64_t page) { change(page); });
    uint64_t changed = now_ns();
    pager::Stats before = far_.stats();
    far_.pager().set_local({1, 0});  // the pager raises it to its minimum
    while (far_.stats().near_pages > far_.stats().limit_pages) os::nanosleep_ns(100'000);
    double us = static_cast<double>(now_ns() - changed) / 1000;
    json made = figures(before, far_.stats(), us);
    made["change_us"] = static_cast<double>(changed - start) / 1000 / static_cast<double>(arena_.pages);
    return made;
  }

 private:
  template <typename Work>
  void for_each_page(Work work) {
    for (uint64_t page = 0; page < arena_.pages; page++) work(page);
  }
  volatile uint64_t* word(uint64_t page, unsigned i) {
    unsigned line = pattern_.alternate ? 2 * i : i;
    return reinterpret_cast<volatile uint64_t*>(arena_.base + page * kPageSize) + line * kLineWords;
  }
  void change(uint64_t page) {
    for (unsigned i = 0; i < pattern_.lines; i++) *word(page, i) = page + round_;
  }
  // Checks that the first line holds the value written by the previous cell.
  void check(uint64_t page) {
    uint64_t value = *word(page, 0);
    if (round_ > 1 && value != page + round_ - 1) die("page {} contains {} in round {}", page, value, round_);
  }
  json figures(const pager::Stats& before, const pager::Stats& after, double us) {
    auto grown = [&](Counter c) { return static_cast<double>(after.get(c) - before.get(c)); };
    double pages = std::max(1.0, grown(Counter::kDirtyEvictions));
    double useful = pages * pattern_.lines * kCacheLine;
    json made = {{"goodput_mb_s", useful / us}, {"sent_per_useful", grown(Counter::kBytesWritten) / useful}};
    double rest = us / pages;
    for (const Phase& phase : kPhases) {
      double ticks = grown(phase.counter);
      if (phase.counter == Counter::kWriteTicks) ticks -= grown(Counter::kCompareTicks);
      double share = ticks / ticks_per_us() / pages;
      made[fmt::format("{}_us", phase.name)] = share;
      rest -= share;
    }
    made["wait_us"] = std::max(0.0, rest);
    return made;
  }

  FarMemory& far_;
  Arena arena_;
  uint64_t bytes_;
  Pattern pattern_;
  uint64_t round_;
};

constexpr unsigned kWarmRounds = 3;  // before a measurement, so that `auto` adapts to the pattern

// All patterns over one link in one mode. The round before them stores every page once.
Result<json> measure_mode(const WritebackSettings& s, const ServerProcess& server, const Link& link, const Mode& mode) {
  std::string address = link.tcp ? server.tcp() : server.shm() + link.query;
  auto far = FarMemory::create({.address = address,
                                .token = server.token(),
                                .bytes = s.bytes,
                                .local = s.bytes,
                                .evictors = s.evictors,
                                .writeback = mode.mode});
  if (!far.ok()) return far.status();
  uint64_t round = 0;
  json cells = json::array();
  Cell(**far, s.bytes, {false, 64}, ++round).run();
  for (const Pattern& pattern : patterns()) {
    unsigned warm = mode.mode == WriteBack::kAuto ? kWarmRounds : 0;
    for (unsigned i = 0; i < warm; i++) Cell(**far, s.bytes, pattern, ++round).run();
    cells.push_back(Cell(**far, s.bytes, pattern, ++round).run());
  }
  return cells;
}

json summed(const std::vector<json>& runs, size_t cell) {
  json sum;
  for (const auto& [name, unused] : runs.front()[cell].items()) {
    std::vector<double> values;
    for (const json& run : runs) values.push_back(run[cell][name]);
    sum[name] = summary(values);
  }
  return sum;
}

double figure(const json& document, const char* link, const char* mode, const Pattern& pattern, const char* name) {
  for (const json& row : document["rows"]) {
    if (row["link"] == link && row["mode"] == mode && row["pattern"] == pattern.name() && row["lines"] == pattern.lines)
      return row[name]["median"];
  }
  return 0;
}

std::vector<Goal> goals_of(const json& document) {
  std::vector<Goal> goals;
  const char* link = kLinks[0].name;
  for (const Pattern& p : patterns()) {
    auto rate = [&](const char* mode) { return figure(document, link, mode, p, "goodput_mb_s"); };
    double limit = p.alternate ? (p.lines <= 4 ? 3 : 0.95) : (p.lines <= 4 ? 5 : 0.95);
    goals.push_back({fmt::format("{}: {} {} lines per page, auto against pages", link, p.lines, p.name()),
                     rate("auto") / rate("page"), limit, true, "x"});
  }
  return goals;
}

std::string goodput_text(const json& document, const Link& link) {
  std::vector<std::vector<std::string>> rows = {
      {fmt::format("{}: goodput, MB/s", link.name), "page", "line", "auto", "auto/page", "sent/changed, page", "auto"}};
  for (const Pattern& p : patterns()) {
    std::vector<std::string> row = {fmt::format("{} {}", p.lines, p.name())};
    auto get = [&](const char* mode, const char* name) { return figure(document, link.name, mode, p, name); };
    for (const Mode& m : kModes) row.push_back(fmt::format("{:.0f}", get(m.name, "goodput_mb_s")));
    row.push_back(fmt::format("{:.2f}x", get("auto", "goodput_mb_s") / get("page", "goodput_mb_s")));
    row.push_back(fmt::format("{:.1f}", get("page", "sent_per_useful")));
    row.push_back(fmt::format("{:.1f}", get("auto", "sent_per_useful")));
    rows.push_back(row);
  }
  return format_table(rows) + "\n";
}

std::string breakdown_text(const json& document, const Link& link) {
  std::vector<std::vector<std::string>> rows = {{fmt::format("{}: us per page", link.name), "change"}};
  for (const Phase& phase : kPhases) rows[0].push_back(phase.name);
  rows[0].push_back("wait");
  for (const Mode& m : kModes) {
    for (unsigned lines : {1u, 8u, 64u}) {
      Pattern p = {false, lines};
      std::vector<std::string> row = {fmt::format("{}, {} contiguous", m.name, lines)};
      auto add = [&](const std::string& name) {
        row.push_back(fmt::format("{:.2f}", figure(document, link.name, m.name, p, (name + "_us").c_str())));
      };
      add("change");
      for (const Phase& phase : kPhases) add(phase.name);
      add("wait");
      rows.push_back(row);
    }
  }
  return format_table(rows) + "\n";
}

}  // namespace

Result<json> measure_writeback(const WritebackSettings& s) {
  SignalHold hold;
  auto server = ServerProcess::start(hold, 4 * s.bytes + kGiB);
  if (!server.ok()) return server.status();
  Progress progress(std::size(kLinks) * std::size(kModes) * s.repetitions, s.quiet);
  std::vector<json> runs[std::size(kLinks)][std::size(kModes)];
  for (unsigned repetition = 0; repetition < s.repetitions; repetition++) {
    for (size_t l = 0; l < std::size(kLinks); l++) {
      for (size_t m = 0; m < std::size(kModes); m++) {
        progress.step(fmt::format("{}, {}", kLinks[l].name, kModes[m].name));
        auto made = run_in_child(hold, [&] { return measure_mode(s, **server, kLinks[l], kModes[m]); });
        if (!made.ok()) return made.status();
        runs[l][m].push_back(*made);
      }
    }
  }
  json document = {{"machine", machine_json()},
                   {"settings", {{"bytes", s.bytes}, {"evictors", s.evictors}, {"repetitions", s.repetitions}}}};
  for (size_t l = 0; l < std::size(kLinks); l++) {
    for (size_t m = 0; m < std::size(kModes); m++) {
      for (size_t p = 0; p < patterns().size(); p++) {
        json row = summed(runs[l][m], p);
        row.update({{"link", kLinks[l].name},
                    {"mode", kModes[m].name},
                    {"pattern", patterns()[p].name()},
                    {"lines", patterns()[p].lines}});
        document["rows"].push_back(row);
      }
    }
  }
  for (const Goal& goal : goals_of(document)) document["goals"].push_back(goal.to_json());
  return document;
}

std::string writeback_text(const json& document) {
  std::string text = machine_text(document["machine"]) + "\n\n";
  for (const Link& link : kLinks) text += goodput_text(document, link) + breakdown_text(document, link);
  for (const Goal& goal : goals_of(document)) text += goal.text() + "\n";
  return text;
}

// Goodput by changed lines, one panel per link.
std::vector<LineChart> writeback_charts(const json& document) {
  std::vector<LineChart> charts;
  for (const Link& link : kLinks) {
    LineChart chart{
        fmt::format("Changed bytes written back, {}", link.name), "changed lines of 64, contiguous", "MB/s", 64, 0, {}};
    for (const Mode& m : kModes) {
      LineChart::Series series{m.name, {}};
      for (unsigned lines : kLines) {
        double rate = figure(document, link.name, m.name, {false, lines}, "goodput_mb_s");
        series.points.emplace_back(lines, rate);
        chart.y_max = std::max(chart.y_max, 1.1 * rate);
      }
      chart.series.push_back(series);
    }
    charts.push_back(chart);
  }
  return charts;
}

}  // namespace farside::bench
