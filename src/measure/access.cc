#include "measure/access.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/bits.h"
#include "base/clock.h"
#include "measure/random.h"

namespace farside {
namespace {

constexpr uint64_t kClockInterval = 256;  // accesses
constexpr uint64_t kWordInPage = 64;      // not the first line of a page, which hardware prefetchers favour
constexpr unsigned kUpdatesPerWord = 8;   // words of the array per update

// Threads may access the same page. Relaxed atomics make that defined and cost nothing.
inline uint64_t touch(std::byte* address, bool write, uint64_t value) {
  auto* word = reinterpret_cast<uint64_t*>(address);
  std::atomic_ref<uint64_t> shared(*word);
  if (!write) return shared.load(std::memory_order_relaxed);
  shared.store(value, std::memory_order_relaxed);
  return 0;
}

inline std::byte* word_of(const Arena& arena, uint64_t page) { return arena.base + page * kPageSize + kWordInPage; }

// Keeps the compiler from removing the reads.
void keep(uint64_t value) { asm volatile("" : : "r"(value)); }

inline void order_loads() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#else
  asm volatile("isb" ::: "memory");
#endif
}

// The accesses of one thread to its part of the memory.
struct Walk {
  const Arena& arena;
  uint64_t first, pages, next;
  Random random;

  template <bool kRandom, bool kWrite, bool kHint>
  uint64_t go(uint64_t count) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
      uint64_t page = kRandom ? random.next() % pages : next;
      if (!kRandom && ++next == pages) next = 0;
      std::byte* word = word_of(arena, first + page);
      if constexpr (kHint) arena.hint(word);
      sum += touch(word, kWrite, i);
    }
    return sum;
  }

  template <bool kHint>
  uint64_t go(const Workload& workload, uint64_t count) {
    if (workload.random) return workload.write ? go<true, true, kHint>(count) : go<true, false, kHint>(count);
    return workload.write ? go<false, true, kHint>(count) : go<false, false, kHint>(count);
  }

  uint64_t go(const Workload& workload, uint64_t count) {
    return arena.hint ? go<true>(workload, count) : go<false>(workload, count);
  }
};

// What one thread did, and when.
struct Timed {
  uint64_t begin, end, accesses;
  double us() const {
    return static_cast<double>(end - begin) / 1000 / static_cast<double>(std::max<uint64_t>(accesses, 1));
  }
};

Timed walk_timed(Walk& walk, const Workload& workload, AccessLimits limits) {
  auto limit = static_cast<uint64_t>(limits.seconds * 1e9);
  uint64_t begin = now_ns(), spent = 0, done = 0, sum = 0;
  while (done < limits.accesses && spent < limit) {
    uint64_t count = std::min(kClockInterval, limits.accesses - done);
    sum += walk.go(workload, count);
    done += count;
    spent = now_ns() - begin;
  }
  keep(sum);
  return {begin, begin + spent, done};
}

// The rate is that of the time in which any thread ran. The sum of the threads' own rates is another figure: a thread
// whose part of the memory stays near has made its accesses before the others have fetched a page.
Pace pace_of(const std::vector<Timed>& threads) {
  Timed all = {UINT64_MAX, 0, 0};
  double us = 0;
  for (const Timed& t : threads) {
    all = {std::min(all.begin, t.begin), std::max(all.end, t.end), all.accesses + t.accesses};
    us += t.us() / static_cast<double>(threads.size());
  }
  return {us, all.accesses, 1e6 / all.us()};
}

// Random accesses of each thread go to the whole memory; sequential ones to one part per thread.
Walk walk_of(const Arena& arena, const Workload& workload, unsigned thread, unsigned threads, uint64_t start) {
  Random random(now_ns() + thread);
  if (workload.random) return {arena, 0, arena.pages, 0, random};
  uint64_t part = arena.pages / threads;
  return {arena, thread * part, part, start % part, random};
}

// Under a limit of memory, the kernel refuses a thread until swap has been written.
template <typename Work>
std::thread start_thread(const Work& work) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  for (unsigned tries = 10'000;; tries--) {
    try {
      return std::thread(work);
    } catch (const std::system_error&) {
      if (tries == 0) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

void populate(const Arena& arena) {
  Random random(1);
  constexpr uint64_t kWords = kPageSize / sizeof(uint64_t);
  for (uint64_t page = 0; page < arena.pages; page++) {
    auto* words = reinterpret_cast<uint64_t*>(arena.base + page * kPageSize);
    for (uint64_t i = 0; i < kWords; i++) words[i] = i < kWords / 2 ? random.next() : page + 1;
  }
}

Pace run_accesses(const Arena& arena, const Workload& workload, unsigned threads, AccessLimits limits,
                  uint64_t* start) {
  std::vector<Timed> timed(threads);
  std::vector<uint64_t> ends(threads);
  std::barrier together(threads);
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; t++) {
    running.push_back(start_thread([&, t] {
      Walk walk = walk_of(arena, workload, t, threads, *start);
      together.arrive_and_wait();
      timed[t] = walk_timed(walk, workload, limits);
      ends[t] = walk.next;
      arena.leave_thread();
    }));
  }
  for (std::thread& thread : running) thread.join();
  *start = ends[0];
  return pace_of(timed);
}

std::vector<uint32_t> time_random_reads(const Arena& arena, AccessLimits limits) {
  std::vector<uint32_t> times;
  times.resize(limits.accesses);  // touches its pages now, not between the accesses
  Random random(now_ns());
  auto limit = static_cast<uint64_t>(limits.seconds * 1e9);
  uint64_t begin = now_ns(), sum = 0, done = 0;
  while (done < limits.accesses) {
    uint64_t page = random.next() % arena.pages;
    uint64_t start = ticks();
    sum += touch(word_of(arena, page), false, 0);
    order_loads();  // the second read of the counter must not overtake the load
    times[done++] = static_cast<uint32_t>(std::min<uint64_t>(ticks() - start, UINT32_MAX));
    if (done % kClockInterval == 0 && now_ns() - begin > limit) break;
  }
  keep(sum);
  times.resize(done);
  return times;
}

double compute(std::span<uint64_t> array, uint64_t seed) {
  Random random(seed);
  uint64_t begin = now_ns(), sum = 0;
  for (uint64_t word : array) sum += word;
  for (uint64_t i = 0; i < array.size() / kUpdatesPerWord; i++) array[random.next() % array.size()] ^= sum + i;
  keep(sum);
  return static_cast<double>(now_ns() - begin) / 1000;
}

}  // namespace farside
