// The limit of near memory that the user sets (--local, `farside ctl`), as a number of frames: a size, a share of the
// heap's peak size, or what is left when so many of the populated pages are far as set_far() says (pager/size).
// Farside's own metadata is taken off the limit.
//
// Thread-safe and async-signal-safe.
#pragma once
#include <algorithm>
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
    size_.store(pages_of(local.bytes));
    least_.store(local.least > 0 ? pages_of(local.least) : kLeast);
    far_.store(0);
    share_.store(local.share);
    apply();
    update_metadata();
  }

  bool is_automatic() const { return share_.load(std::memory_order_relaxed) == SizeOrShare::kAutomatic; }
  // Automatic: so many of the populated pages are to be far from now on. Memory that is touched for the first time
  // raises the limit.
  void set_far(uint64_t pages) {
    far_.store(pages);
    apply();
  }
  // Automatic: the limit is at most this, since the machine has no more memory.
  void set_room(uint64_t pages) {
    room_.store(std::max(pages, least()));
    apply();
  }
  uint64_t far() const { return far_.load(std::memory_order_relaxed); }
  uint64_t least() const { return least_.load(std::memory_order_relaxed); }

  // Counts pages that were touched for the first time. Called while a fault is served.
  void populate(uint64_t pages) {
    uint64_t now = populated_.fetch_add(pages, std::memory_order_relaxed) + pages;
    uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {}
    double share = share_.load(std::memory_order_relaxed);
    bool grows = share > 0 ? now > peak : share < 0 && now > raise_at_.load(std::memory_order_relaxed);
    if (grows) apply();
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
  static constexpr uint64_t kLeast = 2 * kMinPages;  // of an automatic size
  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  static uint64_t pages_of(uint64_t bytes) { return bytes / kPageSize; }
  // Sets the limit, again if another thread sets the budget meanwhile.
  void apply() {
    for (double share = share_.load(), now;; share = now) {
      frames_.set_limit(share > 0 ? share_pages() : share < 0 ? automatic_pages() : size_.load());
      if (now = share_.load(); now == share) return;
    }
  }

  // No limit: twice the peak and some more, so that neither the frames that evictors keep free nor metadata cause an
  // eviction.
  uint64_t all_pages() const { return 2 * peak_.load() + 16 * kMinPages; }
  uint64_t share_pages() const {
    if (share_.load() >= 1) return all_pages();
    auto pages = static_cast<uint64_t>(share_.load() * static_cast<double>(peak_.load()));
    return pages < kMinPages ? kMinPages : pages;
  }

  // The pages that are to be near, the frames that evictors keep free, and some more, so that the limit is not set anew
  // at each first touch.
  uint64_t automatic_pages() {
    constexpr uint64_t kGrowthShare = 64, kMinGrowth = 256;
    uint64_t populated = this->populated(), far = std::min(this->far(), populated);
    uint64_t near = std::max(populated - far, least()), growth = near / kGrowthShare + kMinGrowth;
    uint64_t limit = near + growth + 2 * Frames::low_water_of(near) + metadata_bytes() / kPageSize;
    raise_at_.store(populated + growth / 2, std::memory_order_relaxed);
    uint64_t size = size_.load(), most = std::min(room_.load(), size > 0 ? size : kNoLimit);
    return std::min(far == 0 ? all_pages() : limit, most);
  }

  Frames& frames_;
  const size_t entry_bytes_;
  std::atomic<double> share_{0};
  std::atomic<uint64_t> size_{0};   // the limit, or the largest one if it is automatic
  std::atomic<uint64_t> least_{0};  // automatic
  std::atomic<uint64_t> far_{0};
  std::atomic<uint64_t> room_{kNoLimit};  // automatic
  std::atomic<uint64_t> raise_at_{0};     // automatic: when so many pages are populated, the limit is raised
  std::atomic<uint64_t> populated_{0};
  std::atomic<uint64_t> peak_{0};
};

}  // namespace farside::pager
