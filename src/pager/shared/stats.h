// Counters of the pager. Each thread counts in its own slot, each evictor in its own block, by relaxed stores; readers
// sum them. Reports name the counters as in kNamedCounters.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/clock.h"

namespace farside::pager {

enum class Counter : unsigned {
  kFaults,            // everything that reached the fault path
  kMajorFaults,       // faults whose page had to be fetched from the server
  kReads,             // read requests: of faults, of windows ahead, of hints
  kZeroFaults,        // first touches
  kProtectionFaults,  // first writes to clean pages
  kWaitFaults,        // faults that found the page owned by another thread
  kPrefetched,        // pages fetched ahead
  kPrefetchUsed,      // of these, pages whose use was seen (the stream passed them, or they were written)
  kMappedAhead,       // pages of windows that evictors mapped
  kHugeFetched,       // whole huge pages of 2 MiB, of streams
  kHugeFilled,        // huge pages whose pages were touched for the first time, all at once
  kHugeEvicted,       // huge pages that left as a whole
  kHugeBroken,        // huge pages that could not, and went by pages
  kHugeUpgraded,      // huge pages made writable as a whole
  kPresumedDirty,     // pages mapped writable ahead of a stream of writes, or since a write followed last time
  kHints,             // hints that passed the inline check
  kHintsFetched,      // pages that hints fetched
  kHintsWild,         // hints on memory that belongs to no allocation
  kEvictions,
  kDirtyEvictions,
  kBatches,
  kSubpageReads,  // reads of parts of far pages: objects fetched one by one
  kBytesFetched,
  kBytesWritten,
  kBytesDiscarded,
  kLinePages,       // dirty pages of which only changed lines were written
  kCompareTicks,    // evictors in phase 4: reading and comparing pages with a twin
  kFaultTicks,      // total time in the fault path
  kTouchTicks,      // of these, first touches, without their waiting for a frame
  kTouchFaults,     // faults that were only that
  kFetchTicks,      // of these, waiting for the transport
  kMapTicks,        // of these, UFFDIO_COPY and WRITEPROTECT
  kWaitFrameTicks,  // of these, waiting for a free frame
  kWaitPageTicks,   // of these, waiting for a page's owner
  kAccountTicks,    // of these, publishing pages and adding them to the policy
  kFrameWaits,
  kFramesExceeded,  // frames admitted beyond the limit, since system calls had pinned what could be evicted
  kSelectTicks,     // evictors: the five phases
  kHoldTicks,
  kUnmapTicks,
  kWriteTicks,
  kReleaseTicks,
  kAheadTicks,    // evictors: mapping ahead
  kEvictorCpuNs,  // processor time of the evictors, polling and mapping ahead included
  kCount
};

inline constexpr size_t kCounters = static_cast<size_t>(Counter::kCount);

enum class Unit { kEvents, kTicks, kNanoseconds };

// Counters as reports name them: events, or times, whose names end in _us.
struct NamedCounter {
  const char* name;
  Counter counter;
  Unit unit;
};
inline constexpr NamedCounter kNamedCounters[] = {
    {"faults", Counter::kFaults, Unit::kEvents},
    {"major_faults", Counter::kMajorFaults, Unit::kEvents},
    {"zero_faults", Counter::kZeroFaults, Unit::kEvents},
    {"protection_faults", Counter::kProtectionFaults, Unit::kEvents},
    {"wait_faults", Counter::kWaitFaults, Unit::kEvents},
    {"reads", Counter::kReads, Unit::kEvents},
    {"prefetched", Counter::kPrefetched, Unit::kEvents},
    {"prefetch_used", Counter::kPrefetchUsed, Unit::kEvents},
    {"mapped_ahead", Counter::kMappedAhead, Unit::kEvents},
    {"huge_pages_fetched", Counter::kHugeFetched, Unit::kEvents},
    {"huge_pages_filled", Counter::kHugeFilled, Unit::kEvents},
    {"huge_pages_evicted", Counter::kHugeEvicted, Unit::kEvents},
    {"huge_pages_broken", Counter::kHugeBroken, Unit::kEvents},
    {"huge_pages_upgraded", Counter::kHugeUpgraded, Unit::kEvents},
    {"presumed_dirty", Counter::kPresumedDirty, Unit::kEvents},
    {"hints", Counter::kHints, Unit::kEvents},
    {"hints_fetched", Counter::kHintsFetched, Unit::kEvents},
    {"hints_wild", Counter::kHintsWild, Unit::kEvents},
    {"evictions", Counter::kEvictions, Unit::kEvents},
    {"dirty_evictions", Counter::kDirtyEvictions, Unit::kEvents},
    {"batches", Counter::kBatches, Unit::kEvents},
    {"subpage_reads", Counter::kSubpageReads, Unit::kEvents},
    {"bytes_fetched", Counter::kBytesFetched, Unit::kEvents},
    {"bytes_written", Counter::kBytesWritten, Unit::kEvents},
    {"bytes_discarded", Counter::kBytesDiscarded, Unit::kEvents},
    {"line_pages", Counter::kLinePages, Unit::kEvents},
    {"compare_us", Counter::kCompareTicks, Unit::kTicks},
    {"fault_us", Counter::kFaultTicks, Unit::kTicks},
    {"first_touch_us", Counter::kTouchTicks, Unit::kTicks},
    {"first_touches", Counter::kTouchFaults, Unit::kEvents},
    {"fetch_us", Counter::kFetchTicks, Unit::kTicks},
    {"map_us", Counter::kMapTicks, Unit::kTicks},
    {"wait_frame_us", Counter::kWaitFrameTicks, Unit::kTicks},
    {"wait_page_us", Counter::kWaitPageTicks, Unit::kTicks},
    {"account_us", Counter::kAccountTicks, Unit::kTicks},
    {"frame_waits", Counter::kFrameWaits, Unit::kEvents},
    {"frames_exceeded", Counter::kFramesExceeded, Unit::kEvents},
    {"select_us", Counter::kSelectTicks, Unit::kTicks},
    {"hold_us", Counter::kHoldTicks, Unit::kTicks},
    {"unmap_us", Counter::kUnmapTicks, Unit::kTicks},
    {"write_us", Counter::kWriteTicks, Unit::kTicks},
    {"release_us", Counter::kReleaseTicks, Unit::kTicks},
    {"map_ahead_us", Counter::kAheadTicks, Unit::kTicks},
    {"evictor_cpu_us", Counter::kEvictorCpuNs, Unit::kNanoseconds},
};
static_assert(std::size(kNamedCounters) == kCounters);

class CounterBlock {
 public:
  void add(Counter c, uint64_t amount = 1) {
    auto& v = values_[static_cast<size_t>(c)];
    v.store(v.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);  // one writer: no locked add
  }
  void set(Counter c, uint64_t value) { values_[static_cast<size_t>(c)].store(value, std::memory_order_relaxed); }
  uint64_t get(Counter c) const { return values_[static_cast<size_t>(c)].load(std::memory_order_relaxed); }
  void clear() {
    for (auto& v : values_) v.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> values_[kCounters] = {};
};

// Events, or microseconds. Not for use under a fault.
inline double in_unit(Unit unit, uint64_t amount) {
  auto value = static_cast<double>(amount);
  return unit == Unit::kEvents ? value : value / (unit == Unit::kTicks ? ticks_per_us() : 1000);
}

// A histogram, mostly of durations in ticks: four buckets for each power of two, so a quantile is at most a quarter too
// high.
// One thread writes, others may read.
class Histogram {
 public:
  Histogram() = default;
  Histogram(const Histogram& other) { add(other); }
  Histogram& operator=(const Histogram& other) {
    if (this == &other) return *this;
    clear();
    add(other);
    return *this;
  }
  void put(uint64_t value, uint64_t events = 1) {
    auto& bucket = buckets_[bucket_of(value)];
    bucket.store(bucket.load(std::memory_order_relaxed) + events, std::memory_order_relaxed);
  }
  // Takes away what an earlier copy has.
  void subtract(const Histogram& earlier) {
    for (unsigned i = 0; i < kBuckets; i++) {
      uint64_t now = buckets_[i].load(std::memory_order_relaxed);
      buckets_[i].store(now - std::min(now, earlier.buckets_[i].load(std::memory_order_relaxed)),
                        std::memory_order_relaxed);
    }
  }
  void add(const Histogram& other) {
    for (unsigned i = 0; i < kBuckets; i++) {
      buckets_[i].store(buckets_[i].load(std::memory_order_relaxed) + other.buckets_[i].load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
    }
  }
  void clear() {
    for (auto& b : buckets_) b.store(0, std::memory_order_relaxed);
  }
  uint64_t count() const {
    uint64_t sum = 0;
    for (const auto& b : buckets_) sum += b.load(std::memory_order_relaxed);
    return sum;
  }
  // A bound of the values that at most `above` of the events exceeded.
  uint64_t exceeded_by(uint64_t above) const {
    uint64_t sum = 0;
    for (unsigned i = kBuckets; i-- > 0;) {
      sum += buckets_[i].load(std::memory_order_relaxed);
      if (sum > above) return end_of(i);
    }
    return 0;
  }

 private:
  static constexpr unsigned kBuckets = 160;  // up to 2^41 ticks, more than ten minutes
  // The two bits after the highest one choose the bucket within a power of two.
  static unsigned bucket_of(uint64_t ticks) {
    if (ticks < 4) return static_cast<unsigned>(ticks);
    auto power = static_cast<unsigned>(std::bit_width(ticks)) - 1;
    return std::min(kBuckets - 1, 4 * (power - 1) + static_cast<unsigned>(ticks >> (power - 2) & 3));
  }
  static uint64_t end_of(unsigned bucket) {
    return bucket < 4 ? bucket : (uint64_t{5} + bucket % 4) << (bucket / 4 - 1);
  }
  std::atomic<uint64_t> buckets_[kBuckets] = {};
};

// The sum over all threads and evictors, and the present values of the gauges.
struct Stats {
  uint64_t counters[kCounters] = {};
  uint64_t busiest_thread_fetches = 0;  // the most major faults of one thread
  Histogram fault_times, frame_waits;   // of all faults; of those that waited for a frame
  uint64_t near_pages = 0, near_peak_pages = 0;
  uint64_t near_mean_pages = 0, populated_mean_pages = 0;  // over time, of an automatic size; else the peaks
  double slowdown = 0;                                     // the accepted loss of an automatic size; else 0
  uint64_t populated_pages = 0, populated_peak_pages = 0;
  uint64_t limit_pages = 0;
  uint64_t metadata_bytes = 0;
  uint64_t get(Counter c) const { return counters[static_cast<size_t>(c)]; }
};

}  // namespace farside::pager
