// Random reads by 1 to 64 fibers on one worker: objects, and paging with and without hints. On kernel swap as many
// threads read instead, because only a thread can wait for the kernel.
#include <fmt/format.h>

#include <thread>

#include "base/clock.h"
#include "bench/objects/lines.h"
#include "measure/configurations.h"
#include "measure/random.h"
#include "report/format.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr unsigned kCounts[] = {1, 4, 16, 64};
constexpr unsigned kMaxCount = 64;
constexpr double kGoal = 7;  // objects compared with pages of an unmodified program
constexpr const char* kThreads = "threads";

constexpr NamedConfiguration kConfigurations[] = {{"objects", Configuration::kOneByOne},
                                                  {"pages, hinted", Configuration::kHintedPages},
                                                  {"pages, no hints", Configuration::kPages}};

json key_of(const std::string& transport, const std::string& configuration, unsigned count) {
  return {{"suite", "fibers"}, {"transport", transport}, {"configuration", configuration}, {"fibers", count}};
}

void read_at_random(Lines& lines, uint64_t accesses, uint64_t seed) {
  Random random(seed);
  for (uint64_t i = 0; i < accesses; i++) lines.read(random.next() % lines.count());
}

Result<json> measure_far(const Context& context, const std::string& transport, const NamedConfiguration& configuration,
                         unsigned fibers) {
  auto far = open_for_lines(context, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, context.settings.bytes / sizeof(Line));
  uint64_t accesses = context.settings.accesses;
  time_fibers(fibers, [&](unsigned f) { read_at_random(lines, accesses / 4 / fibers, f); });
  double before = bytes_fetched(**far);
  double seconds = time_fibers(fibers, [&](unsigned f) { read_at_random(lines, accesses / fibers, kMaxCount + f); });
  double useful = static_cast<double>(accesses) * sizeof(Line);
  return json::array({make_row(key_of(transport, configuration.name, fibers),
                               {{"reads_per_s", static_cast<double>(accesses) / seconds},
                                {"bytes_per_useful", (bytes_fetched(**far) - before) / useful}})});
}

double time_threads(unsigned threads, const std::function<void(unsigned)>& work) {
  uint64_t begin = now_ns();
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; t++) all.emplace_back(work, t);
  for (std::thread& thread : all) thread.join();
  return static_cast<double>(now_ns() - begin) / 1e9;
}

Result<json> measure_swap(const Context& context, unsigned threads) {
  Result<std::byte*> memory = context.swap->enter_and_map(context.settings.bytes);
  if (!memory.ok()) return memory.status();
  Lines lines(*memory, context.settings.bytes / sizeof(Line));
  uint64_t accesses = context.settings.accesses;
  read_at_random(lines, accesses / 4, 0);
  double seconds = time_threads(threads, [&](unsigned t) { read_at_random(lines, accesses / threads, kMaxCount + t); });
  return json::array(
      {make_row(key_of(kSwap, kThreads, threads), {{"reads_per_s", static_cast<double>(accesses) / seconds}})});
}

std::vector<Measurement> measurements(const Context& context) {
  std::vector<Measurement> all;
  for (std::string transport : kTransports) {
    for (const NamedConfiguration& configuration : kConfigurations) {
      for (unsigned n : kCounts) {
        all.push_back({fmt::format("{} fibers, {}, {}", n, configuration.name, transport),
                       [=, &configuration] { return measure_far(context, transport, configuration, n); }});
      }
    }
  }
  for (unsigned n : kCounts) {
    if (!context.swap) break;
    all.push_back({fmt::format("{} threads, kernel swap", n), [=] { return measure_swap(context, n); }, true});
  }
  return all;
}

std::vector<std::string> table_row(const json& document, const std::string& transport,
                                   const std::string& configuration) {
  std::vector<std::string> row = {fmt::format("{}, {}", configuration, transport)};
  for (unsigned n : kCounts)
    row.push_back(figure_text(document, key_of(transport, configuration, n), "reads_per_s", 1000));
  return row;
}

double rate(const json& document, const char* configuration) {
  return figure(document, key_of("tcp", configuration, kMaxCount), "reads_per_s");
}

std::string text(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"random reads of 64 B, thousands a second, by fibers"}};
  for (unsigned n : kCounts) rows[0].push_back(fmt::format("{}", n));
  rows[0].push_back("bytes fetched for each useful one");
  for (const char* transport : kTransports) {
    for (const NamedConfiguration& w : kConfigurations) {
      rows.push_back(table_row(document, transport, w.name));
      rows.back().push_back(figure_text(document, key_of(transport, w.name, kMaxCount), "bytes_per_useful"));
    }
  }
  if (find_row(document, key_of(kSwap, kThreads, 1))) rows.push_back(table_row(document, kSwap, kThreads));
  return format_table(rows) + fmt::format("Objects against hinted pages over tcp, {} fibers: {:.1f}x\n", kMaxCount,
                                          rate(document, "objects") / rate(document, "pages, hinted"));
}

std::vector<Goal> goals(const json& document) {
  std::vector<Goal> goals;
  add_ratio_goal(&goals, fmt::format("random 64 B reads over tcp, {} fibers: objects against pages", kMaxCount),
                 rate(document, "objects"), rate(document, "pages, no hints"), kGoal, true);
  return goals;
}

}  // namespace

const Suite kFibers = {"fibers", measurements, text, goals, no_charts};

}  // namespace farside::bench::objects_bench
