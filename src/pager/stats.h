// Counters of the pager. Each thread counts in its own slot with plain relaxed adds; readers sum the slots.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farside::pager {

enum class Counter : unsigned {
  kFaults,            // everything that reached the fault path
  kMajorFaults,       // whose page had to be fetched from far
  kReads,             // requests to the far side: of faults, of windows under way, of hints
  kZeroFaults,        // first touches
  kProtectionFaults,  // first writes to clean pages
  kWaitFaults,        // found the page owned by somebody else
  kPrefetched,        // pages fetched ahead
  kPrefetchUsed,      // of these, pages whose use was seen (the stream reached past them, or they were written)
  kPresumedDirty,     // pages mapped writable ahead of a stream of writes, or of a write that has followed before
  kHints,             // that got past the inline guard
  kHintsFetched,      // pages that hints fetched
  kHintsWild,         // hints on memory that belongs to no allocation
  kEvictions,
  kDirtyEvictions,
  kBatches,
  kBytesFetched,
  kBytesWritten,
  kBytesDiscarded,
  kFaultTicks,      // time in the fault path, all of it
  kFetchTicks,      // of these, waiting for the transport
  kMapTicks,        // of these, UFFDIO_COPY and WRITEPROTECT
  kWaitFrameTicks,  // of these, waiting for a free frame
  kWaitPageTicks,   // of these, waiting for a page's owner
  kFrameWaits,
  kSelectTicks,  // evictors: the five phases
  kHoldTicks,
  kUnmapTicks,
  kWriteTicks,
  kReleaseTicks,
  kCount
};

inline constexpr size_t kCounters = static_cast<size_t>(Counter::kCount);

class CounterBlock {
 public:
  void add(Counter c, uint64_t amount = 1) {
    auto& v = values_[static_cast<size_t>(c)];
    v.store(v.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);  // one writer: no locked add
  }
  uint64_t get(Counter c) const { return values_[static_cast<size_t>(c)].load(std::memory_order_relaxed); }
  void clear() {
    for (auto& v : values_) v.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> values_[kCounters] = {};
};

// A sum over all threads, with the gauges of the moment.
struct Stats {
  uint64_t counters[kCounters] = {};
  uint64_t near_pages = 0, near_peak_pages = 0;
  uint64_t populated_pages = 0, populated_peak_pages = 0;
  uint64_t limit_pages = 0;
  uint64_t metadata_bytes = 0;
  uint64_t get(Counter c) const { return counters[static_cast<size_t>(c)]; }
};

}  // namespace farside::pager
