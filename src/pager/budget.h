// Turns what the user asked for (a size, or a share of the heap's largest size) into the frame limit, and keeps it up
// to date: a share grows with the high-water mark of populated pages; metadata is taken off.
#pragma once
#include <atomic>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "base/size.h"
#include "pager/frames.h"

namespace farside::pager {

class Budget {
 public:
  static constexpr uint64_t kMinPages = 8 * kMiB / kPageSize;

  // entry_bytes: what the tables keep for each page.
  Budget(Frames& frames, SizeOrShare local, size_t entry_bytes) : frames_(frames), entry_bytes_(entry_bytes) {
    set(local);
  }

  void set(SizeOrShare local) {
    share_.store(local.share);
    frames_.set_limit(local.is_share() ? share_pages() : pages_of(local.bytes));
    update_metadata();
  }

  // Pages were touched for the first time. Called under a fault.
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

  // Farside's own tables count too: what the near allocator holds, and the touched part of the tables of pages.
  uint64_t metadata_bytes() const { return near_bytes() + align_up(populated_peak() * entry_bytes_, kPageSize); }
  void update_metadata() { frames_.set_reserved(metadata_bytes() / kPageSize); }

 private:
  static uint64_t pages_of(uint64_t bytes) { return bytes / kPageSize; }
  // All of the heap near means no limit: what the evictors keep free, and metadata, must not push out the rest.
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
