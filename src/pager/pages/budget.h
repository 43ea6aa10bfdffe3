// The limit of near memory that the user sets (--local, `farside ctl`), as a number of frames: a size, or a share of
// the heap's peak size. A share is recomputed when the peak grows. Farside's own metadata is taken off the limit.
//
// Thread-safe and async-signal-safe.
#pragma once
#include <atomic>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "base/size.h"
#include "pager/pages/frames.h"

namespace farside::pager {

class Budget {
 public:
  static constexpr uint64_t kMinPages = 8 * kMiB / kPageSize;

  // entry_bytes: size of the entries of all tables for one page of far space.
  Budget(Frames& frames, SizeOrShare local, size_t entry_bytes) : frames_(frames), entry_bytes_(entry_bytes) {
    set(local);
  }

  void set(SizeOrShare local) {
    share_.store(local.share);
    frames_.set_limit(local.is_share() ? share_pages() : pages_of(local.bytes));
    update_metadata();
  }

  // Counts pages that were touched for the first time. Called while a fault is served.
  void populate(uint64_t pages) {
    uint64_t now = populated_.fetch_add(pages, std::memory_order_relaxed) + pages;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {}
    if (now > peak && share_.load(std::memory_order_relaxed) > 0) frames_.set_limit(share_pages());
  }
  void depopulate(uint64_t pages) {
    uint64_t before = populated_.fetch_sub(pages, std::memory_order_relaxed);
    FARSIDE_CHECK(before >= pages);
  }

  uint64_t populated() const { return populated_.load(std::memory_order_relaxed); }
  uint64_t populated_peak() const { return peak_.load(std::memory_order_relaxed); }

  // Farside's metadata, which counts as near memory: what the near allocator has taken from the kernel, and the touched
  // part of the tables with an entry for each page.
  uint64_t metadata_bytes() const { return near_bytes() + align_up(populated_peak() * entry_bytes_, kPageSize); }
  void update_metadata() { frames_.set_reserved(metadata_bytes() / kPageSize); }

 private:
  static uint64_t pages_of(uint64_t bytes) { return bytes / kPageSize; }
  // A share of 1 or more means no limit: twice the peak and some more, so that neither the frames that evictors keep
  // free nor metadata cause an eviction.
  uint64_t share_pages() const {
    if (share_.load() >= 1) return 2 * peak_.load() + 16 * kMinPages;
    auto pages = static_cast<uint64_t>(share_.load() * static_cast<double>(peak_.load()));
    return pages < kMinPages ? kMinPages : pages;
  }

  Frames& frames_;
  const size_t entry_bytes_;
  std::atomic<double> share_{0};
  std::atomic<uint64_t> populated_{0};
  std::atomic<uint64_t> peak_{0};
};

}  // namespace farside::pager
