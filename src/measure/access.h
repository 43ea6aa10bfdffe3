// The measured accesses: one word on one page after another, at random or in order, by one or more threads. They do not
// depend on how the memory is paged, so that all configurations run the same loop.
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
// Reads are first: their evictions are then clean, except for the pages that populate() made dirty, and the warm-up
// removes those.
inline constexpr Workload kWorkloads[] = {kRandomRead, kSequentialRead, kRandomWrite, kSequentialWrite};

// Memory under test.
struct Arena {
  std::byte* base = nullptr;
  uint64_t pages = 0;
  std::function<void()> leave_thread = [] {};            // called at its end by every thread that used the memory
  std::function<void(const std::byte*)> hint = nullptr;  // called before each access, unless it is empty
};

// How long a measurement takes: each thread makes that many accesses, but stops after that many seconds.
struct AccessLimits {
  uint64_t accesses;
  double seconds;
};

// Fills every page with data that compresses to about a half, as is typical of program data: zram compresses.
void populate(const Arena& arena);

struct Pace {
  double us;          // per access of one thread; the mean of the threads
  uint64_t accesses;  // of all threads
  double per_s;       // of all threads, from the first one's begin to the last one's end
};

// Starts the threads and returns when all have ended. Sequential accesses begin at page `start` of each thread's part
// of the memory, and *start is set to where they ended.
Pace run_accesses(const Arena& arena, const Workload& workload, unsigned threads, AccessLimits limits, uint64_t* start);

// Reads at random by the calling thread, each access timed separately. In ticks (base/clock.h).
std::vector<uint32_t> time_random_reads(const Arena& arena, AccessLimits limits);

// Computes over an array that needs no paging: a sum in order, and updates at random places. Returns microseconds.
double compute(std::span<uint64_t> array, uint64_t seed);

}  // namespace farside
