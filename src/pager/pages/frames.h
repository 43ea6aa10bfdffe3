// The frame budget: the number of pages that may be near. A page holds a frame from before it is fetched until its
// content is stored on the server, so near pages, pages in flight and pages in the pipes of evictors all count.
// Metadata is taken off the limit (set_reserved). A thread that finds no free frame waits for the evictors. The budget
// is exceeded by force_take() and exceed() only. Frames that are kept ready are used, but hold no page: held() and
// peak() do not count them.
//
// Lock-free; all functions are thread-safe and async-signal-safe. A fault writes no cache line that all threads share:
// threads take frames in bulk and keep spare ones for their next faults (MAGE 4.2.3).
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/bits.h"
#include "base/log.h"
#include "base/sync.h"

namespace farside::pager {

// Frames that one thread has taken in advance. Other threads may take them back when frames run short.
class SpareFrames {
 public:
  bool try_take() {
    uint32_t now = count_.load(std::memory_order_relaxed);
    while (now > 0) {
      if (count_.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  void put(uint32_t frames) { count_.fetch_add(frames, std::memory_order_acq_rel); }
  uint32_t take_all() {
    return count_.load(std::memory_order_relaxed) == 0 ? 0 : count_.exchange(0, std::memory_order_acq_rel);
  }

 private:
  std::atomic<uint32_t> count_{0};
};

class Frames {
 public:
  // The maximum of frames in use, metadata included. If more are in use, the limit falls to it gradually: at least half
  // of the frames that the evictors release lower the limit, and the others serve threads that wait. So no thread waits
  // much longer than a batch takes.
  void set_limit(uint64_t pages) {
    target_.store(pages);
    uint64_t in_use = used() + reserved_.load(std::memory_order_relaxed);
    uint64_t now = limit();
    while (
        !limit_.compare_exchange_weak(now, pages >= now || pages >= in_use ? pages : (now < in_use ? now : in_use))) {}
  }
  void set_reserved(uint64_t pages) { reserved_.store(pages); }
  uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // The limit that was set last, to which limit() falls.
  uint64_t target() const { return target_.load(std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t held() const { return held_of(used()); }
  uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }

  bool try_take(uint64_t pages) {
    uint64_t now = used_.fetch_add(pages, std::memory_order_acq_rel) + pages;
    if (now > usable()) {
      give_back(pages);
      return false;
    }
    if (now > peak_.load(std::memory_order_relaxed)) raise_peak(held_of(now));
    return true;
  }

  // Takes frames to keep them ready, if `spare` more are free.
  bool try_take_ready(uint64_t pages, uint64_t spare) {
    ready_.fetch_add(pages, std::memory_order_relaxed);
    if (used_.fetch_add(pages, std::memory_order_acq_rel) + pages + spare <= usable()) return true;
    give_back(pages);
    ready_.fetch_sub(pages, std::memory_order_relaxed);
    return false;
  }
  void put_ready(uint64_t pages) { ready_.fetch_add(pages, std::memory_order_relaxed); }
  // They are going to hold pages.
  void use_ready(uint64_t pages) {
    ready_.fetch_sub(pages, std::memory_order_relaxed);
    raise_peak(held());
  }
  void give_ready(uint64_t pages) {
    give(pages);
    ready_.fetch_sub(pages, std::memory_order_relaxed);
  }

  // Takes one frame, from the thread's spare frames if it has any. They are refilled in bulk, by so many that all
  // threads together hold at most an eighth of the free frames.
  bool try_take(SpareFrames& spare, size_t threads) {
    if (spare.try_take()) return true;
    uint64_t now = used(), free = now < usable() ? usable() - now : 0;
    auto bulk = static_cast<uint32_t>(std::clamp<uint64_t>(free / (8 * threads), 1, kMaxSpare));
    if (!try_take(bulk)) return bulk > 1 && try_take(1);
    FARSIDE_DCHECK(bulk >= 1 && bulk <= kMaxSpare);
    spare.put(bulk - 1);
    return true;
  }

  // For faults while no evictor runs, during a fork and before start(): may exceed the limit.
  void force_take(uint64_t pages) { raise_peak(held_of(used_.fetch_add(pages) + pages)); }

  // Admits `pages` frames more than are in use, for threads that would wait for ever: nothing can be evicted. The limit
  // falls again to the one that was set, as in set_limit().
  void exceed(uint64_t pages) {
    uint64_t wanted = used() + reserved_.load(std::memory_order_relaxed) + pages, now = limit();
    while (now < wanted && !limit_.compare_exchange_weak(now, wanted)) {}
  }

  void give(uint64_t pages) {
    FARSIDE_DCHECK(pages <= used());
    give_back(pages);
    if (is_shrinking()) lower(pages / 2 + (pages & used() & 1));  // of single frames every other one
    released_.wake_all();
  }

  // Number of free frames below which the first evictor works. It stops when twice as many are free.
  uint64_t low_water() const { return low_water_of(usable()); }
  static uint64_t low_water_of(uint64_t usable) {
    uint64_t share = usable / 64;
    return share < 64 ? (usable / 4 < 64 ? usable / 4 : 64) : (share > 4096 ? 4096 : share);
  }
  bool low() const { return is_below(0); }
  // low() is true also from so many frames in use on: for evictors that are started when they are needed.
  void set_attention(uint64_t used) { attention_.store(used, std::memory_order_relaxed); }
  // Whether fewer frames are free than the low-water mark (level 0), than half of it (level 1), a quarter (level 2) and
  // so on, or the limit falls. Evictor number `level` starts to work then.
  bool is_below(unsigned level) const {
    uint64_t now = used();
    return now + (low_water() >> level) > usable() || is_shrinking() ||
           now > attention_.load(std::memory_order_relaxed);
  }

  // Too few free frames for pages that no thread has requested yet.
  bool scarce() const { return used() + low_water() / 4 > usable(); }
  // Enough free frames: the evictors stop.
  bool plentiful() const { return !is_shrinking() && missing() == 0; }
  // The number of frames to free until then.
  uint64_t missing() const {
    uint64_t wanted = used() + 2 * low_water(), all = usable();
    return wanted > all ? wanted - all : 0;
  }

  // Pages evicted so far by all evictors: the clock that measures how long ago a page was evicted.
  void count_evicted(uint64_t pages) { evicted_.fetch_add(pages, std::memory_order_relaxed); }
  uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }
  // The same in units of kEpochPages, which fits into a page word.
  static constexpr uint64_t kEpochPages = 256;
  uint64_t age_of(uint16_t epoch) const { return kEpochPages * static_cast<uint16_t>(this->epoch() - epoch); }
  uint16_t epoch() const { return static_cast<uint16_t>(evicted() / kEpochPages); }

  // Signalled when frames are released.
  Event& released() { return released_; }
  // Threads that wait for a frame.
  void begin_wait() { waiting_.fetch_add(1, std::memory_order_relaxed); }
  void end_wait() { waiting_.fetch_sub(1, std::memory_order_relaxed); }
  unsigned waiting() const { return waiting_.load(std::memory_order_relaxed); }

  void reset_in_child() {
    released_.reset_in_child();
    waiting_.store(0, std::memory_order_relaxed);
  }

 private:
  uint64_t usable() const {
    uint64_t limit = limit_.load(std::memory_order_relaxed), reserved = reserved_.load(std::memory_order_relaxed);
    return reserved + kMin < limit ? limit - reserved : (limit < kMin ? limit : kMin);
  }
  uint64_t held_of(uint64_t used) const { return saturating_sub(used, ready_.load(std::memory_order_relaxed)); }
  bool is_shrinking() const { return limit() > target(); }
  // Lowers the limit towards the target: by `pages`, or to the frames in use plus kSlack if that is less.
  void lower(uint64_t pages) {
    uint64_t in_use = used() + reserved_.load(std::memory_order_relaxed) + kSlack;
    uint64_t now = limit(), target = this->target(), next;
    do {
      if (now <= target) return;
      next = now - pages < in_use ? now - pages : in_use;
      if (next < target || pages > now) next = target;
    } while (!limit_.compare_exchange_weak(now, next));
  }
  void give_back(uint64_t pages) {
    uint64_t before = used_.fetch_sub(pages, std::memory_order_acq_rel);
    FARSIDE_CHECK(before >= pages);
  }
  void raise_peak(uint64_t now) {
    uint64_t old = peak_.load(std::memory_order_relaxed);
    while (old < now && !peak_.compare_exchange_weak(old, now, std::memory_order_relaxed)) {}
  }

  static constexpr uint64_t kMin = 128;    // usable frames, however large the metadata: faults make progress
  static constexpr uint64_t kSlack = 256;  // free frames while the limit falls
  static constexpr uint64_t kMaxSpare = 32;
  // Read at every fault, rarely written.
  alignas(kCacheLine) std::atomic<uint64_t> limit_{0};
  std::atomic<uint64_t> target_{0};
  std::atomic<uint64_t> reserved_{0};
  std::atomic<uint64_t> attention_{UINT64_MAX};
  // Written by evictors for each batch, and by threads that refill.
  alignas(kCacheLine) std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> ready_{0};
  std::atomic<uint64_t> peak_{0};
  alignas(kCacheLine) std::atomic<uint64_t> evicted_{0};
  alignas(kCacheLine) Event released_;
  std::atomic<unsigned> waiting_{0};
};

}  // namespace farside::pager
