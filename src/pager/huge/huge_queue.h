// Which huge pages are evicted first. Three queues, each first in, first out, as those of pages (policy/two_queue.h):
//   recent   what streams fetched: it passes through here and displaces nothing else
//   new      what streams of first writes filled: programs often read it soon, so a quarter of near memory is theirs
//   main     huge pages that were touched first while near memory was not full, or that returned soon after their
//   eviction
// A huge page has at most one entry (HugeTable::kQueued). Its entry names all near pages of the huge page whose word
// has kHuge; docs/internals/huge_pages.md shows why none is forgotten.
//
// Thread-safe and async-signal-safe.
#pragma once
#include <algorithm>

#include "base/sync.h"
#include "pager/huge/huge_table.h"
#include "pager/pages/frames.h"
#include "pager/policy/page_queue.h"

namespace farside::pager {

class HugeQueue {
 public:
  enum Kind : unsigned { kRecent, kNew, kMain, kKinds };
  static constexpr size_t kMinRecent = 2;     // huge pages that streams keep: the one in use, and the one before,
  static constexpr size_t kRecentShare = 32;  // or this part of near memory

  HugeQueue(HugeTable& table, const Frames& frames) : table_(table), frames_(frames) {}

  // Adds an entry, unless the huge page has one. All its pages that are near have kHuge already.
  void push(HugeIndex huge, Kind kind) {
    if (table_.set(huge, HugeTable::kQueued)) return;
    LockGuard guard(lock_);
    queues_[kind].push(huge);
    last_push_[kind].store(frames_.evicted(), std::memory_order_relaxed);
    if (kind == kRecent && ++pushed_ % kForget == 0 && more_recent_ > 0) more_recent_--;
  }

  // Removes the oldest entry. The caller evicts the huge page, adds it again, or moves its pages to the policy's
  // queues.
  bool pop(Kind kind, HugeIndex* huge) {
    if (size(kind) == 0) return false;
    LockGuard guard(lock_);
    PageIndex taken;
    if (!queues_[kind].pop(&taken)) return false;
    *huge = taken;
    bool was_queued = table_.clear(taken, HugeTable::kQueued);
    FARSIDE_CHECK(was_queued);
    return true;
  }

  // Takes that huge page which can be missed first because it was used once: the oldest of the recent or the new queue,
  // as far as it has more than it keeps.
  bool pop_surplus(HugeIndex* huge, Kind* kind) {
    for (Kind k : {kRecent, kNew}) {
      if (size(k) > kept(k) && pop(*kind = k, huge)) return true;
    }
    return false;
  }

  // Takes any huge page, those first that can be missed first.
  bool pop_any(HugeIndex* huge, Kind* kind) {
    for (Kind k : {kRecent, kNew, kMain}) {
      if (pop(*kind = k, huge)) return true;
    }
    return false;
  }

  // A stream came back to a huge page after `age` evictions of pages. If that is at once, there are more streams than
  // the recent queue has huge pages, and it keeps more for a while.
  void record_return(uint64_t age) {
    if (age <= 2 * kept(kRecent) * kHugePages && more_recent_ < kMaxMore) more_recent_++;
  }

  // Streams fetch no huge pages for a while: the recent queue keeps none.
  void end_streams() { last_push_[kRecent].store(frames_.evicted() - frames_.limit(), std::memory_order_relaxed); }

  size_t size(Kind kind) const { return queues_[kind].size(); }
  size_t size() const { return size(kRecent) + size(kNew) + size(kMain); }
  // How many huge pages the recent or the new queue keeps: none if no huge page has come for long.
  size_t kept(Kind kind) const {
    uint64_t idle = frames_.evicted() - last_push_[kind].load(std::memory_order_relaxed);
    if (idle > frames_.limit() / kIdleShare) return 0;
    size_t all = frames_.limit() / kHugePages;
    if (kind == kNew) return std::max(all / kNewShare, kMinRecent);
    size_t least = kMinRecent + more_recent_.load(std::memory_order_relaxed);
    return std::max({all / kRecentShare, kMinRecent, std::min(least, all / kMaxShare)});
  }

 private:
  static constexpr uint64_t kForget = 32;    // huge pages, after which the recent queue keeps one less
  static constexpr uint64_t kIdleShare = 4;  // of near memory: so many pages were evicted since the last huge page came
  static constexpr size_t kMaxShare = 8;     // of near memory, at most
  static constexpr size_t kNewShare = 4;
  static constexpr unsigned kMaxMore = 30;

  HugeTable& table_;
  const Frames& frames_;
  SpinLock lock_;  // guards queues_, too, whose sizes are also read without it
  PageQueue queues_[kKinds];
  uint64_t pushed_ GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> last_push_[kKinds] = {};  // in evicted pages
  std::atomic<unsigned> more_recent_{0};          // advice
};

}  // namespace farside::pager
