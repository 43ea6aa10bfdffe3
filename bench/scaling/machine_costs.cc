#include "bench/scaling/machine_costs.h"

#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/bits.h"
#include "base/clock.h"
#include "base/os.h"
#include "measure/statistics.h"

namespace farside::bench::scaling {
namespace {

using nlohmann::json;

// The time to move a cache line from one core to another: two threads write to it alternately. The best of many short
// rounds, in which neither thread was preempted.
double measure_line() {
  constexpr unsigned kRounds = 300, kTurns = 500;
  alignas(64) std::atomic<unsigned> turn{0};
  double best = 1e9;
  auto play = [&](unsigned me) {
    run_on(me, 1);
    uint64_t start = now_ns();
    for (unsigned i = me; i < 2 * kRounds * kTurns; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) {}
      turn.store(i + 1, std::memory_order_release);
      if (me != 0 || i % (2 * kTurns) != 0) continue;
      if (i > 0) best = std::min(best, static_cast<double>(now_ns() - start) / 1000 / (2 * kTurns));
      start = now_ns();
    }
  };
  std::thread other(play, 1);
  std::thread one(play, 0);
  other.join();
  one.join();
  return best;
}

// The time to map a page and drop it again, in us. Each value is the mean of a round of about 0.1 ms.
std::vector<double> time_drops() {
  constexpr unsigned kRounds = 300, kDrops = 30;
  void* page = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::vector<double> rounds;
  for (unsigned round = 0; round < kRounds; round++) {
    uint64_t start = now_ns();
    for (unsigned i = 0; i < kDrops; i++) {
      *static_cast<volatile char*>(page) = 1;
      madvise(page, kPageSize, MADV_DONTNEED);
    }
    rounds.push_back(static_cast<double>(now_ns() - start) / 1000 / kDrops);
  }
  munmap(page, kPageSize);
  return rounds;
}

// The additional time to drop a page when another core runs the program: the shootdown. It compares medians, because in
// the best rounds the other core runs something else.
double measure_shootdown() {
  double alone = 0, beside = 0;
  std::atomic<bool> stop{false};
  std::thread([&] {
    run_on(0, 1);
    alone = median(time_drops());
    std::thread other([&] {
      run_on(1, 1);
      while (!stop.load(std::memory_order_relaxed)) {}
    });
    beside = median(time_drops());
    stop = true;
    other.join();
  }).join();
  return std::max(0.0, beside - alone);
}

// Two threads on two cores wake each other in turn: the processor time of a wake-up, and the time until the other runs.
json measure_wake_ups() {
  constexpr unsigned kTurns = 300;
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) return {{"wake", 0}, {"wake_latency", 0}};
  std::vector<double> wakes, latencies;
  char turn = 0;
  std::thread other([&] {
    run_on(1, 1);
    char t;
    while (read(there[0], &t, 1) == 1 && t != 0) (void)!write(back[1], &t, 1);
  });
  std::thread([&] {
    run_on(0, 1);
    for (unsigned i = 0; i < kTurns; i++) {
      usleep(100);  // the other thread is asleep by then
      uint64_t start = now_ns();
      turn = 1;
      (void)!write(there[1], &turn, 1);
      uint64_t woken = now_ns();
      (void)!read(back[0], &turn, 1);
      wakes.push_back(static_cast<double>(woken - start) / 1000);
      latencies.push_back(static_cast<double>(now_ns() - start) / 2000);
    }
  }).join();
  turn = 0;
  (void)!write(there[1], &turn, 1);
  other.join();
  for (int fd : {there[0], there[1], back[0], back[1]}) close(fd);
  return {{"wake", median(wakes)}, {"wake_latency", std::max(0.0, median(latencies) - median(wakes))}};
}

// The time to move a frame of 2 MiB to another address and back, by half; 0 where the kernel has no UFFDIO_MOVE, or no
// huge page for it.
double measure_move() {
  constexpr long kFrame = 2 * kMiB;
  constexpr unsigned kMoves = 200;
  long memory = os::map_aligned(2 * kFrame, kFrame, PROT_READ | PROT_WRITE);
  if (memory < 0) return 0;
  auto* base = reinterpret_cast<char*>(memory);
  os::madvise(base, 2 * kFrame, MADV_HUGEPAGE);
  for (long i = 0; i < kFrame; i += kPageSize) *static_cast<volatile char*>(base + i) = 1;
  uint64_t features = 0;
  int fd = os::open_userfaultfd(os::kUffdFeatureMove, &features);
  bool works = fd >= 0 && os::uffd_register(fd, base, 2 * kFrame, UFFDIO_REGISTER_MODE_MISSING) == 0;
  std::vector<double> times;
  for (unsigned i = 0; works && i < kMoves; i++) {
    uint64_t start = now_ns();
    works = os::uffd_move(fd, base + (1 - i % 2) * kFrame, base + i % 2 * kFrame, kFrame) == kFrame;
    times.push_back(static_cast<double>(now_ns() - start) / 1000);
  }
  if (fd >= 0) os::close(fd);
  os::munmap(base, 2 * kFrame);
  return works ? median(times) : 0;
}

// The time to copy a page of memory that is in no cache.
double measure_copy() {
  constexpr uint64_t kBytes = 64 * kMiB;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  uint64_t start = now_ns();
  memcpy(to.data(), from.data(), kBytes);
  return static_cast<double>(now_ns() - start) / 1000 / (kBytes / kPageSize) + (to[kPageSize] == 2 ? 1 : 0);
}

}  // namespace

void run_on(unsigned first, unsigned count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = 0; i < count; i++) CPU_SET(first + i, &set);
  sched_setaffinity(0, sizeof set, &set);
}

Result<json> measure_machine() {
  json measured = measure_wake_ups();
  measured.update({{"line", measure_line()},
                   {"shootdown", measure_shootdown()},
                   {"move", measure_move()},
                   {"copy", measure_copy()}});
  return measured;
}

}  // namespace farside::bench::scaling
