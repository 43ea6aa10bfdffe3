// Which extents are evicted first. Two queues, each first in, first out:
//   recent   what streams fetched: it passes through here and displaces nothing else
//   main     extents that were touched first while near memory was not full, or that returned soon after their eviction
// An extent has at most one entry (ExtentTable::kQueued). Its entry names all near pages of the extent whose word has
// kExtent; docs/internals/extents.md shows why none is forgotten.
//
// Thread-safe and async-signal-safe.
#pragma once
#include "base/sync.h"
#include "pager/extents/extent_table.h"
#include "pager/policy/page_queue.h"

namespace farside::pager {

class ExtentQueue {
 public:
  enum Kind { kRecent, kMain };
  static constexpr size_t kMinRecent =
      4;  // extents that streams keep: the one in use, and the one ahead, of two streams
  static constexpr size_t kRecentShare = 16;  // or this part of near memory

  explicit ExtentQueue(ExtentTable& table) : table_(table) {}

  // Adds an entry, unless the extent has one. All its pages that are near have kExtent already.
  void push(ExtentIndex extent, Kind kind) {
    if (table_.set(extent, ExtentTable::kQueued)) return;
    LockGuard guard(lock_);
    queues_[kind].push(extent);
  }

  // Removes the oldest entry. The caller evicts the extent, adds it again, or moves its pages to the policy's queues.
  bool pop(Kind kind, ExtentIndex* extent) {
    if (size(kind) == 0) return false;
    LockGuard guard(lock_);
    PageIndex taken;
    if (!queues_[kind].pop(&taken)) return false;
    *extent = taken;
    bool was_queued = table_.clear(taken, ExtentTable::kQueued);
    FARSIDE_CHECK(was_queued);
    return true;
  }

  // Takes that extent which can be missed first because it was used once: the oldest of the recent queue, as far as it
  // has more than it keeps. near_pages: the limit of near memory.
  bool pop_surplus(uint64_t near_pages, ExtentIndex* extent) {
    return size(kRecent) > kept(near_pages) && pop(kRecent, extent);
  }

  size_t size(Kind kind) const { return queues_[kind].size(); }
  static size_t kept(uint64_t near_pages) {
    size_t share = near_pages / kExtentPages / kRecentShare;
    return share < kMinRecent ? kMinRecent : share;
  }

 private:
  ExtentTable& table_;
  SpinLock lock_;  // guards queues_; sizes are also read without it
  PageQueue queues_[2];
};

}  // namespace farside::pager
