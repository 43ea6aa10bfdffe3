// Shows which near objects are in use, as the CLOCK algorithm does. A dereference leaves no trace once the access bit
// of its line is set. So the clock's hand takes the access bits of near segments away, one segment after the other. The
// next use of an object of the segment takes the slow path, which tells the eviction policy and sets all of the bits
// again.
//
// The hand advances as pages of objects are evicted: once around while an eighth of the watched segments is replaced.
// While everything is near it stands still, and costs nothing.
//
// Watched are the segments that a log has filled, and those on which a dereference took the slow path. An evicted
// segment leaves the ring when the hand reaches it.
#pragma once
#include <algorithm>
#include <vector>

#include "base/near.h"
#include "base/sync.h"
#include "objects/segment.h"

namespace farside::objects {

class Clock {
 public:
  // By any thread that is busy (ObjectSpace::Busy), so not during a fork.
  void watch(Segment& segment, PageIndex page) {
    if (segment.watched.load(std::memory_order_relaxed) != 0) return;
    if (segment.watched.exchange(1, std::memory_order_relaxed) != 0) return;
    LockGuard guard(mutex_);
    arrived_.push_back(page);
  }
  // By evictors.
  void add_evictions(uint64_t pages) { evictions_.fetch_add(pages, std::memory_order_relaxed); }

  // By the evacuator. Calls pass(page) for each segment that the hand reaches; false: it is not watched any more.
  template <typename Pass>
  void advance(SegmentTable& table, Pass pass) {
    collect();
    uint64_t evictions = evictions_.exchange(0, std::memory_order_relaxed);
    for (uint64_t left = std::min<uint64_t>(kPerEviction * evictions, ring_.size()); left > 0; left--) {
      if (hand_ >= ring_.size()) hand_ = 0;
      PageIndex page = ring_[hand_];
      if (pass(page)) {
        hand_++;
        continue;
      }
      table[page].watched.store(0, std::memory_order_relaxed);
      ring_[hand_] = ring_.back();
      ring_.pop_back();
    }
  }

 private:
  using Pages = std::vector<PageIndex, NearAllocator<PageIndex>>;
  static constexpr uint64_t kPerEviction = 8;  // segments that the hand passes

  void collect() {
    LockGuard guard(mutex_);
    ring_.insert(ring_.end(), arrived_.begin(), arrived_.end());
    arrived_.clear();
  }

  std::atomic<uint64_t> evictions_{0};
  Mutex mutex_;
  Pages arrived_ GUARDED_BY(mutex_);
  Pages ring_;
  size_t hand_ = 0;
};

}  // namespace farside::objects
