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
#include "measure/statistics.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr unsigned kFibers = 16;
constexpr uint64_t kRead = 64, kReplaced = 8;  // lines of one batch
constexpr uint64_t kRuns = 4;                  // times the settings' accesses
constexpr size_t kShown = 100;                 // samples that the document keeps
constexpr uint64_t kSampleNs = 1'000'000;

struct Scopes {
  const char* name;
  bool always;
};
constexpr Scopes kScopes[] = {{"a scope for each batch", false}, {"always in a scope", true}};

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

// [[percent of the run, share], ...]
json thin_out(const std::vector<double>& samples) {
  json shown = json::array();
  for (size_t i = 0; i < kShown; i++) shown.push_back({i, samples[i * samples.size() / kShown]});
  return shown;
}

Result<json> measure(const Setup& setup, const char* transport, const Scopes& scopes) {
  auto far = open_for_lines(setup, transport, Configuration::kHybrid);
  if (!far.ok()) return far.status();
  Lines lines(**far, Configuration::kHybrid, setup.settings().bytes / sizeof(Line));
  uint64_t batches = std::max<uint64_t>(1, kRuns * setup.settings().accesses / kRead / kFibers);
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
  return figures;
}

}  // namespace

// Even when scopes are open all the time, almost no read waits for memory.
Suite free_memory_suite() {
  return {
      .name = "free-memory",
      .measurements = each(measure, Axis{"transport", kTransports}, Axis{"scopes", kScopes}),
      .tables = {table(
          "free near memory, %", {"scopes", "transport"},
          {col("minimum", "free_min", 1, 0.01), col("median", "free_median", 1, 0.01),
           col("reads that waited for memory, %", "waits_per_read", 3, 0.01),
           col("most garbage, %", "garbage_max", 1, 0.01), col("thousand reads/s", "reads_per_s", 1, 1000)})},
      .targets = {goal("reads over {transport} that waited for near memory, {scopes}", "waits_per_read",
                       at_most(1, " %"), {{"scopes", kScopes[1].name}})
                      .times(100)},
      .charts = {chart("Free near memory, garbage", "% of the run", "share", nullptr, {"free", "garbage"}, {"scopes"})
                     .by({"transport"})
                     .up_to(kShown, 1)}};
}

}  // namespace farside::bench::objects_bench
