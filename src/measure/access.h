// The accesses that are measured: one word on one page after another, at random or in order, by one thread or more.
// They know nothing of how the memory is paged, so every way of paging runs the very same loop.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace farside {

struct Workload {
  const char* name;
  bool random;
  bool write;
};
inline constexpr Workload kRandomRead = {"random read", true, false};
inline constexpr Workload kRandomWrite = {"random write", true, true};
inline constexpr Workload kSequentialRead = {"sequential read", false, false};
inline constexpr Workload kSequentialWrite = {"sequential write", false, true};
// Reads come first: their evictions are then clean but for the pages that filling made dirty, which warm-up removes.
inline constexpr Workload kWorkloads[] = {kRandomRead, kSequentialRead, kRandomWrite, kSequentialWrite};

// Memory under test.
struct Arena {
  std::byte* base = nullptr;
  uint64_t pages = 0;
  std::function<void()> leave_thread = [] {};  // a thread that used the memory calls it at its end
};

// How long to go on: each thread does so many accesses, but stops after so many seconds.
struct Extent {
  uint64_t accesses;
  double seconds;
};

// Fills every page with data that compresses to about a half, as programs' data does: swap on zram compresses.
void populate(const Arena& arena);

struct Pace {
  double us;          // that a thread spends on one access
  uint64_t accesses;  // of all threads
};

// Sequential accesses go on at page `start` of each thread's part of the memory; *start is moved on.
Pace run_accesses(const Arena& arena, const Workload& workload, unsigned threads, Extent extent, uint64_t* start);

// One thread reads at random and times each access alone. In ticks.
std::vector<uint32_t> time_random_reads(const Arena& arena, Extent extent);

// Passes over an array that never needs paging: a sum in order, and updates at random places. Microseconds.
double compute(std::span<uint64_t> array, uint64_t seed);

}  // namespace farside
