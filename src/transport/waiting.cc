#include "transport/waiting.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/clock.h"
#include "base/os.h"

namespace farside::transport {
namespace {

constexpr uint64_t kGapNs = 400'000;       // between two polls: the thread did not run
constexpr uint64_t kWatchNs = 20'000'000;  // after a gap, for which threads count how often they are preempted
constexpr uint64_t kMinCrowdedNs = 50'000'000, kMaxCrowdedNs = 1'000'000'000;

std::atomic<uint32_t> g_waiting{0};      // threads
std::atomic<uint32_t> g_max_polling{0};  // 0: not known yet
std::atomic<uint64_t> g_watch_until{0};
std::atomic<uint64_t> g_crowded_until{0}, g_crowded_ns{kMinCrowdedNs};

uint32_t half_of_cores() {
  uint64_t mask[128] = {};
  long bytes = os::call(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int cores = 0;
  for (size_t i = 0; bytes > 0 && i < static_cast<size_t>(bytes) / sizeof mask[0]; i++) cores += std::popcount(mask[i]);
  return std::max(1u, static_cast<uint32_t>(cores) / 2);
}

uint32_t max_polling() {
  uint32_t known = g_max_polling.load(std::memory_order_relaxed);
  if (known != 0) return known;
  uint32_t half = half_of_cores();
  g_max_polling.store(half, std::memory_order_relaxed);
  return half;
}

long involuntary_switches() {
  rusage usage = {};
  os::call(SYS_getrusage, RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// The longer it stays so, the more rarely polling is tried again.
void note_crowded(uint64_t now_ns) {
  uint64_t until = g_crowded_until.load(std::memory_order_relaxed), last = g_crowded_ns.load(std::memory_order_relaxed);
  if (now_ns < until) return;
  uint64_t next = now_ns - until < last ? std::min(2 * last, kMaxCrowdedNs) : kMinCrowdedNs;
  g_crowded_ns.store(next, std::memory_order_relaxed);
  g_crowded_until.store(now_ns + next, std::memory_order_relaxed);
}

}  // namespace

Waiting::Waiting(ReplyTimes& times)
    : times_(times), begin_ns_(now_ns()), seen_ns_(begin_ns_), may_poll_(times.allow_polling()) {
  g_waiting.fetch_add(1, std::memory_order_relaxed);
  if (begin_ns_ < g_watch_until.load(std::memory_order_relaxed)) switches_ = involuntary_switches();
}

Waiting::~Waiting() { g_waiting.fetch_sub(1, std::memory_order_relaxed); }

bool Waiting::polls(uint64_t now_ns) {
  note_gap(now_ns);
  polls_ = may_poll_ && now_ns - begin_ns_ < kWakeUpNs && now_ns >= g_crowded_until.load(std::memory_order_relaxed) &&
           g_waiting.load(std::memory_order_relaxed) <= max_polling();
  return polls_;
}

void Waiting::complete(uint64_t now_ns) {
  note_gap(now_ns);
  times_.add(now_ns - begin_ns_);
}

// A gap between two polls: the virtual machine was stopped, or another thread had the core. Only the latter counts. To
// tell costs a system call when a wait begins, so threads make it only for a while after a gap.
void Waiting::note_gap(uint64_t now_ns) {
  bool gap = polls_ && now_ns - seen_ns_ > kGapNs;
  seen_ns_ = now_ns;
  if (!gap) return;
  if (switches_ >= 0 && involuntary_switches() > switches_) return note_crowded(now_ns);
  g_watch_until.store(now_ns + kWatchNs, std::memory_order_relaxed);
}

void Waiting::reset_in_child() {
  g_waiting.store(0, std::memory_order_relaxed);
  g_watch_until.store(0, std::memory_order_relaxed);
  g_crowded_until.store(0, std::memory_order_relaxed);
}

}  // namespace farside::transport
