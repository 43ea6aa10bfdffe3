// How long threads wait for the evacuator: while it works concurrently, and with the program stopped (AIFM, figure 14).
//
// The evacuator never stops the program. For the comparison a scope that stays open keeps it from working: no segment
// is emptied while a scope is open that is older than the segment's closing. When enough garbage has been made, all
// threads are stopped between two batches, the scope ends, the evacuator does all the work that has accumulated, and a
// new scope begins. The same code thus does the same work at other times. Eviction is concurrent in both variants.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "bench/objects/lines.h"
#include "measure/random.h"
#include "measure/statistics.h"
#include "objects/api.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr uint64_t kBatches = 512;  // together they write as often as there are lines
constexpr uint64_t kRuns = 8;       // times the settings' accesses
constexpr uint64_t kNearShare = 3;  // live lines take a third of near memory, garbage the rest
constexpr double kDueShare = 0.12;  // of near memory, in new pages of objects; AIFM's threshold
constexpr uint64_t kPollNs = 100'000;
constexpr unsigned kMaxThreads = 8;
constexpr unsigned kQuietPolls = 10;  // without progress, then the evacuator is done; about five of its rounds
constexpr double kQuantiles[] = {0, 0.5, 0.9, 0.95, 0.99, 0.995, 0.999};

struct Variant {
  const char* name;
  bool stops;
};
constexpr Variant kVariants[] = {{"concurrent", false}, {"with the program stopped", true}};

farside_object_stats object_stats() {
  farside_object_stats stats;
  farside_get_object_stats(&stats);
  return stats;
}

// One processor is left to the evacuator.
unsigned thread_count() { return std::clamp(std::thread::hardware_concurrency(), 2u, kMaxThreads + 1) - 1; }

// The running threads, which can be stopped between their batches.
class Threads {
 public:
  explicit Threads(unsigned threads) : running_(threads) {}
  void safepoint() {  // called by a thread between two batches, in no scope; waits while the threads are stopped
    if (!stopped_.load(std::memory_order_acquire)) return;
    std::unique_lock lock(mutex_);
    held_++;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !stopped_.load(); });
    held_--;
  }
  void end_thread() {  // called by a thread at its end
    std::lock_guard guard(mutex_);
    running_--;
    changed_.notify_all();
  }
  void stop() {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    changed_.wait(lock, [this] { return held_ == running_; });
  }
  void resume() {
    std::lock_guard guard(mutex_);
    stopped_ = false;
    changed_.notify_all();
  }
  bool all_ended() {
    std::lock_guard guard(mutex_);
    return running_ == 0;
  }

 private:
  std::mutex mutex_;  // guards running_, held_, and changes of stopped_
  std::condition_variable changed_;
  std::atomic<bool> stopped_{false};
  unsigned running_, held_ = 0;
};

void wait_for_evacuator() {
  uint64_t done = 0;
  for (unsigned quiet = 0; quiet < kQuietPolls; quiet++) {
    os::nanosleep_ns(kPollNs);
    farside_object_stats now = object_stats();
    if (now.moved + now.segments_freed != done) quiet = 0;
    done = now.moved + now.segments_freed;
  }
}

// Stops the threads whenever `due_segments` new segments exist, until they end. Returns the length of each pause in us.
std::vector<double> stop_when_due(Threads& all_threads, uint64_t due_segments) {
  std::vector<double> pauses;
  std::optional<deref_scope> none_is_emptied(std::in_place);
  uint64_t segments = object_stats().segments;
  while (!all_threads.all_ended()) {
    os::nanosleep_ns(kPollNs);
    if (object_stats().segments < segments + due_segments) continue;
    uint64_t begin = ticks();
    all_threads.stop();
    none_is_emptied.reset();
    wait_for_evacuator();
    none_is_emptied.emplace();
    segments = object_stats().segments;
    all_threads.resume();
    pauses.push_back(static_cast<double>(ticks() - begin) / ticks_per_us());
  }
  return pauses;
}

// The batches of one thread, on its own lines: writes to random lines, and half as many lines replaced.
void run_batches(Threads& all_threads, Lines& lines, uint64_t begin, uint64_t end, uint64_t writes,
                 std::vector<double>* us) {
  Random random(begin);
  auto any = [&] { return begin + random.next() % (end - begin); };
  uint64_t batch = std::max<uint64_t>(2, lines.count() / kBatches);
  for (uint64_t done = 0; done < writes; done += batch) {
    uint64_t start = ticks();
    all_threads.safepoint();
    {
      deref_scope scope;
      for (uint64_t i = 0; i < batch; i++) lines.write(any());
    }
    for (uint64_t i = 0; i < batch / 2; i++) lines.replace(any());
    us->push_back(static_cast<double>(ticks() - start) / ticks_per_us());
  }
}

// Quantiles of the batches: [[nines of the batches, microseconds], ...]. The number of nines spreads out the tail.
json curve_of(std::vector<double>& us) {
  json curve = json::array();
  for (double share : kQuantiles) curve.push_back({-std::log10(1 - share), quantile(us, share)});
  return curve;
}

json figures_of(std::vector<double>& us, const std::vector<double>& pauses, uint64_t moved) {
  json figures = {{"curve", curve_of(us)}, {"batches", us.size()}, {"pauses", pauses.size()}, {"moved", moved}};
  figures.update({{"p50_us", quantile(us, 0.5)},
                  {"p90_us", quantile(us, 0.9)},
                  {"p99_us", quantile(us, 0.99)},
                  {"p999_us", quantile(us, 0.999)},
                  {"pause_us", median(pauses)}});
  return figures;
}

Result<json> measure(const Setup& setup, const Variant& variant) {
  auto far = open_for_lines(setup, "shm", Configuration::kHybrid);
  if (!far.ok()) return far.status();
  Lines lines(**far, Configuration::kHybrid, setup.settings().near_bytes() / kNearShare / sizeof(Line));
  unsigned count = thread_count();
  uint64_t writes = kRuns * setup.settings().accesses / count;
  uint64_t moved = object_stats().moved;
  Threads all_threads(count);
  std::vector<double> us[kMaxThreads], pauses;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < count; t++) {
    threads.emplace_back([&, t] {
      run_batches(all_threads, lines, lines.count() * t / count, lines.count() * (t + 1) / count, writes, &us[t]);
      all_threads.end_thread();
      objects::forget_thread();
      (*far)->arena().leave_thread();
    });
  }
  auto due = static_cast<uint64_t>(kDueShare * static_cast<double>(setup.settings().near_bytes())) / kPageSize;
  if (variant.stops) pauses = stop_when_due(all_threads, due);
  for (std::thread& thread : threads) thread.join();
  for (unsigned t = 1; t < count; t++) us[0].insert(us[0].end(), us[t].begin(), us[t].end());
  return figures_of(us[0], pauses, object_stats().moved - moved);
}

}  // namespace

// The concurrent evacuator halves the 99.9th percentile of a batch.
Suite pauses_suite() {
  return {.name = "pauses",
          .measurements = each(measure, Axis{"evacuator", kVariants}),
          .tables = {table(
              "us per batch of writes and new objects, by evacuator", {"evacuator"},
              {col("p50", "p50_us", 0), col("p90", "p90_us", 0), col("p99", "p99_us", 0), col("p99.9", "p999_us", 0),
               col("pauses", "pauses", 0), col("us per pause", "pause_us", 0), col("objects moved", "moved", 0)})},
          .targets = {goal("p99.9 of a batch: concurrent evacuator against a stopped program", "p999_us", at_most(0.5),
                           {{"evacuator", kVariants[0].name}})
                          .over("p999_us", {{"evacuator", kVariants[1].name}})},
          .charts = {chart("Batches of writes, by evacuator", "nines of the batches (2: 99 %)", "us", nullptr,
                           {"curve"}, {"evacuator"})
                         .up_to(3)}};
}

}  // namespace farside::bench::objects_bench
