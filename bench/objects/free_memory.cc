// Free near memory over time, while fibers read, create and destroy far objects and garbage builds up (AIFM, figure
// 15). In AIFM only evacuation frees memory, and it waits for scopes. Here eviction frees memory and does not wait. The
// second variant shows this: every fiber is always in a scope, so that no object may be moved and all garbage stays.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "bench/objects/lines.h"
#include "farside/fiber.hpp"
#include "measure/random.h"
#include "report/format.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr unsigned kFibers = 16;
constexpr uint64_t kRead = 64, kReplaced = 8;  // lines of one batch
constexpr uint64_t kRuns = 4;                  // times the settings' accesses
constexpr size_t kShown = 100;                 // samples that the document keeps
constexpr uint64_t kSampleNs = 1'000'000;
constexpr double kGoalPercent = 1;  // of the reads

struct Scopes {
  const char* name;
  bool always;
};
constexpr Scopes kScopes[] = {{"a scope for each batch", false}, {"always in a scope", true}};

json key_of(const std::string& transport, const std::string& scopes) {
  return {{"suite", "free-memory"}, {"transport", transport}, {"scopes", scopes}};
}

// Relative to the limit less the pager's own tables and buffers.
double free_share(const pager::Stats& stats) {
  double usable = static_cast<double>(stats.limit_pages * kPageSize) - static_cast<double>(stats.metadata_bytes);
  return std::clamp(1 - static_cast<double>(stats.near_pages * kPageSize) / usable, 0.0, 1.0);
}

// A thread that samples memory once a millisecond.
class Sampler {
 public:
  explicit Sampler(FarMemory& far) : far_(far), thread_([this] { run(); }) {}
  // Ends the thread. Returns all samples: the free share of near memory, and the garbage share of the objects' pages.
  void stop(std::vector<double>* free, std::vector<double>* garbage) {
    stopping_ = true;
    thread_.join();
    *free = free_, *garbage = garbage_;
  }

 private:
  void run() {
    do {
      pager::Stats stats = far_.stats();
      farside_object_stats objects;
      farside_get_object_stats(&objects);
      free_.push_back(free_share(stats));
      garbage_.push_back(1 -
                         static_cast<double>(objects.object_bytes) / static_cast<double>(objects.segments * kPageSize));
      os::nanosleep_ns(kSampleNs);
    } while (!stopping_);
  }

  FarMemory& far_;
  std::vector<double> free_, garbage_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

void run_batch(Lines& lines, uint64_t begin, uint64_t end, Random& random) {
  auto any = [&] { return begin + random.next() % (end - begin); };
  deref_scope scope;
  for (uint64_t i = 0; i < kRead; i++) lines.read(any());
  for (uint64_t i = 0; i < kReplaced; i++) lines.replace(any());
}

// Each fiber has its own lines.
double run_batches(Lines& lines, uint64_t batches, bool always_in_scope) {
  return time_fibers(kFibers, [&](unsigned f) {
    Random random(f);
    std::optional<deref_scope> all_the_time;
    if (always_in_scope) all_the_time.emplace();
    uint64_t begin = lines.count() * f / kFibers, end = lines.count() * (f + 1) / kFibers;
    for (uint64_t i = 0; i < batches; i++) {
      run_batch(lines, begin, end, random);
      this_fiber::yield();  // over shm reads rarely suspend; without it one fiber would run alone, and its lines would
                            // all be near
    }
  });
}

json thin_out(const std::vector<double>& samples) {
  json shown = json::array();
  for (size_t i = 0; i < kShown; i++) shown.push_back(samples[i * samples.size() / kShown]);
  return shown;
}

Result<json> measure(const Context& context, const std::string& transport, const Scopes& scopes) {
  auto far = open_for_lines(context, transport, Configuration::kHybrid);
  if (!far.ok()) return far.status();
  Lines lines(**far, Configuration::kHybrid, context.settings.bytes / sizeof(Line));
  uint64_t batches = std::max<uint64_t>(1, kRuns * context.settings.accesses / kRead / kFibers);
  pager::Stats before = (*far)->stats();
  Sampler sampler(**far);
  double seconds = run_batches(lines, batches, scopes.always);
  std::vector<double> free, garbage;
  sampler.stop(&free, &garbage);
  pager::Stats after = (*far)->stats();
  auto reads = static_cast<double>(batches * kRead * kFibers);
  auto waits = static_cast<double>(after.get(Counter::kFrameWaits) - before.get(Counter::kFrameWaits));
  json figures = {{"free", thin_out(free)}, {"garbage", thin_out(garbage)}};
  figures.update({{"free_min", *std::min_element(free.begin(), free.end())},
                  {"free_median", median(free)},
                  {"garbage_max", *std::max_element(garbage.begin(), garbage.end())},
                  {"waits_per_read", waits / reads},
                  {"reads_per_s", reads / seconds}});
  return json::array({make_row(key_of(transport, scopes.name), figures)});
}

std::vector<Measurement> measurements(const Context& context) {
  std::vector<Measurement> all;
  for (std::string transport : kTransports) {
    for (const Scopes& scopes : kScopes) {
      all.push_back({fmt::format("free memory, {}, {}", scopes.name, transport),
                     [=, &scopes] { return measure(context, transport, scopes); }});
    }
  }
  return all;
}

std::string text(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"free near memory, %", "minimum", "median",
                                                 "reads that waited for memory, %", "most garbage, %",
                                                 "thousand reads/s"}};
  for (const char* transport : kTransports) {
    for (const Scopes& scopes : kScopes) {
      json key = key_of(transport, scopes.name);
      auto percent = [&](const char* name) { return figure_text(document, key, name, 0.01); };
      rows.push_back({fmt::format("{}, {}", scopes.name, transport), percent("free_min"), percent("free_median"),
                      figure_text(document, key, "waits_per_read", 0.01, 3), percent("garbage_max"),
                      figure_text(document, key, "reads_per_s", 1000)});
    }
  }
  return format_table(rows);
}

// Even when scopes are open all the time, almost no read waits for memory.
std::vector<Goal> goals(const json& document) {
  std::vector<Goal> goals;
  for (const char* transport : kTransports) {
    double share = figure(document, key_of(transport, kScopes[1].name), "waits_per_read");
    goals.push_back({fmt::format("reads over {} that waited for near memory, {}", transport, kScopes[1].name),
                     100 * share, kGoalPercent, false, " %"});
  }
  return goals;
}

std::vector<LineChart> charts(const json& document) {
  std::vector<LineChart> charts;
  for (const char* transport : kTransports) {
    LineChart chart{
        fmt::format("Free near memory, garbage, over {}", transport), "% of the run", "share", kShown, 1, {}};
    for (const char* figure : {"free", "garbage"}) {
      for (const Scopes& scopes : kScopes) {
        LineChart::Series series{fmt::format("{}, {}", figure, scopes.name), {}};
        for (const json& share : (*find_row(document, key_of(transport, scopes.name)))[figure])
          series.points.emplace_back(series.points.size(), share.get<double>());
        chart.series.push_back(series);
      }
    }
    charts.push_back(chart);
  }
  return charts;
}

}  // namespace

const Suite kFreeMemory = {"free-memory", measurements, text, goals, charts};

}  // namespace farside::bench::objects_bench
