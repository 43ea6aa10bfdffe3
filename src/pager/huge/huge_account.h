// Whether huge pages that come whole pay. A stream's huge pages hold more near memory than its windows do: the one in
// use, the one before, the next one, and free frames. Where near memory is just large enough for what else the program
// uses, pages that are used again and again leave for them. So they are charged with the refaults that they cause:
// pages that return after no more evictions than their frames would have prevented (the refault distance of the
// kernel's workingset.c; docs/decisions/0063).
//
// At the end of a period of evictions, an eighth of near memory, the refaults are compared with what the huge pages
// that came meanwhile have saved. If they cost more, streams go by windows and dense huge pages by pages for a while,
// whose length doubles each time, and the frames are given back at once. So a trial costs at most an eighth of near
// memory's turnover in eight.
//
// Thread-safe and async-signal-safe. All state is advice: counts may be lost.
#pragma once
#include <algorithm>
#include <atomic>

#include "base/bits.h"
#include "pager/huge/frame_pool.h"
#include "pager/huge/huge_queue.h"
#include "pager/pages/frames.h"

namespace farside::pager {

class HugeAccount {
 public:
  HugeAccount(const Frames& frames, HugeQueue& queue, FramePool& pool) : frames_(frames), queue_(queue), pool_(pool) {}

  // A fault has fetched a page that left so many evictions ago.
  void record_refault(unsigned thread, uint64_t age) {
    if (age <= held_.load(std::memory_order_relaxed))
      refaults_[thread % kShards].count.fetch_add(1, std::memory_order_relaxed);
  }
  // A huge page has come for a stream, or because it is dense: what it saves.
  void record_stream() { saved_.fetch_add(kSavedByStream, std::memory_order_relaxed); }
  void record_dense() { saved_.fetch_add(kSavedByDensity, std::memory_order_relaxed); }

  // Whether huge pages may come whole. Called by faults for which one would.
  bool pays() {
    uint64_t end = end_.load(std::memory_order_relaxed), now = frames_.evicted();
    if (now >= end && end_.compare_exchange_strong(end, now + period(), std::memory_order_relaxed))
      end_period(end, now);
    return pays_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kShards = 16;
  // In single faults. A huge page of a stream saves 90 to 150 us over shared memory, which is what so many cost, and
  // more over a network, where a fault costs more, too. One that is dense would have come by single faults.
  static constexpr uint64_t kSavedByStream = 32, kSavedByDensity = kHugePages / 2;
  static constexpr uint64_t kPeriodShare = 8;                // of near memory, in evictions
  static constexpr uint64_t kMinPause = 8, kMaxPause = 128;  // periods

  struct alignas(kCacheLine) Count {
    std::atomic<uint64_t> count{0};
  };

  uint64_t period() const { return std::max<uint64_t>(frames_.limit() / kPeriodShare, kHugePages); }

  void end_period(uint64_t ended, uint64_t now) {
    uint64_t refaults = 0, saved = saved_.exchange(0, std::memory_order_relaxed);
    for (Count& c : refaults_) refaults += c.count.exchange(0, std::memory_order_relaxed);
    bool was_paused = !pays_.load(std::memory_order_relaxed);
    // If no huge page was asked for in a turnover of near memory, most refaults are not theirs.
    bool is_late = now - ended > frames_.limit();
    bool loses = !was_paused && !is_late && refaults > std::max(saved, kSavedByStream);
    uint64_t pause = pause_.load(std::memory_order_relaxed);
    if (loses) {
      pause = std::clamp(2 * pause, kMinPause, kMaxPause);
      end_.store(now + pause * period(), std::memory_order_relaxed);
      queue_.end_streams();
      pool_.end_demand();
    } else if (!was_paused) {
      pause -= pause / 4;
    }
    pause_.store(pause, std::memory_order_relaxed);
    pays_.store(!loses, std::memory_order_relaxed);
    // What streams keep, a free frame, the one that is being read, and one that is being written.
    uint64_t huge =
        std::max(queue_.size(HugeQueue::kRecent), HugeQueue::kMinRecent) + std::max<size_t>(pool_.free(), 1) + 2;
    held_.store(huge * kHugePages, std::memory_order_relaxed);
  }

  const Frames& frames_;
  HugeQueue& queue_;
  FramePool& pool_;
  std::atomic<uint64_t> end_{0};    // of the period or the pause, in evictions
  std::atomic<uint64_t> pause_{0};  // the last one, in periods
  std::atomic<uint64_t> held_{0};   // pages in frames of streams
  std::atomic<uint64_t> saved_{0};  // single faults
  std::atomic<bool> pays_{true};
  Count refaults_[kShards];
};

}  // namespace farside::pager
