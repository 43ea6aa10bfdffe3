// `farside bench writeback`: evicts pages in which some lines were changed, as whole pages or by lines, over a link
// with limited bandwidth and over tcp (Kona, figure 11). Goodput is the changed bytes written per second of eviction:
// all data is made near and changed before the budget is lowered and the clock started.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "bench/suites.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr uint64_t kLineWords = kCacheLine / 8;
constexpr unsigned kLines[] = {1, 2, 4, 8, 16, 32, 64};

struct Link {
  const char *name, *transport;
  const char* query;  // appended to the address
};
constexpr Link kLinks[] = {{"shm, 10 Gbit/s", "shm", "?gbps=10"}, {"tcp", "tcp", ""}};

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

class Round {
 public:
  Round(FarMemory& far, uint64_t bytes, Pattern pattern, uint64_t round)
      : far_(far), arena_(far.arena()), bytes_(bytes), pattern_(pattern), round_(round) {}

  json run() {
    far_.pager().evictors().set_local({3 * bytes_ + 64 * kMiB, 0});
    for_each_page([this](uint64_t page) { check(page); });
    uint64_t start = now_ns();
    for_each_page([this](uint64_t page) { change(page); });
    uint64_t changed = now_ns();
    pager::Stats before = far_.stats();
    far_.pager().evictors().set_local({1, 0});  // the pager raises it to its minimum
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
Result<json> measure(const Setup& setup, const Link& link, const Mode& mode) {
  FarMemoryConfig config = setup.far(link.transport);
  config.address += link.query;
  config.local = config.bytes;
  config.writeback = mode.mode;
  auto far = FarMemory::create(config);
  if (!far.ok()) return far.status();
  uint64_t round = 0;
  json rows = json::array();
  Round(**far, config.bytes, {false, 64}, ++round).run();
  for (const Pattern& pattern : patterns()) {
    unsigned warm = mode.mode == WriteBack::kAuto ? kWarmRounds : 0;
    for (unsigned i = 0; i < warm; i++) Round(**far, config.bytes, pattern, ++round).run();
    rows.push_back(make_row({{"pattern", pattern.name()}, {"lines", pattern.lines}},
                            Round(**far, config.bytes, pattern, ++round).run()));
  }
  return rows;
}

Target auto_beside_pages(const char* pattern, std::vector<unsigned> lines, double limit) {
  return goal("{link}: {lines} {pattern} lines per page, auto against pages", "goodput_mb_s", at_least(limit),
              {{"link", kLinks[0].name}, {"mode", "auto"}, {"pattern", pattern}, {"lines", lines}})
      .over("goodput_mb_s", {{"mode", "page"}});
}

}  // namespace

Suite writeback_suite() {
  return {
      .name = "writeback",
      .measurements = each(measure, Axis{"link", kLinks}, Axis{"mode", kModes}),
      .tables =
          {table("goodput, MB/s", {"link", "pattern", "lines"}, {col("", "goodput_mb_s", 0)}).by("mode", "auto"),
           table("bytes sent per changed one", {"link", "pattern", "lines"}, {col("", "sent_per_useful")}).by("mode"),
           table("us per page", {"link", "mode", "lines"},
                 {col("change", "change_us", 2), col("select", "select_us", 2), col("hold", "hold_us", 2),
                  col("unmap", "unmap_us", 2), col("compare", "compare_us", 2), col("send", "send_us", 2),
                  col("release", "release_us", 2), col("wait", "wait_us", 2)})
               .of({{"pattern", "contiguous"}, {"lines", {1, 8, 64}}})},
      .targets = {auto_beside_pages("contiguous", {1, 2, 4}, 5), auto_beside_pages("contiguous", {8, 16, 32, 64}, 0.95),
                  auto_beside_pages("alternate", {2, 4}, 3), auto_beside_pages("alternate", {8, 16, 32}, 0.95)},
      .charts = {chart("Changed bytes written back", "changed lines of 64, contiguous", "MB/s", "lines",
                       {"goodput_mb_s"}, {"mode"})
                     .by({"link"})
                     .of({{"pattern", "contiguous"}})}};
}

}  // namespace farside::bench
