// Where objects are placed: each thread fills its own segments, one object after the other, so that objects that are
// created or fetched together are placed together (AIFM 5.2, Atlas 4.3). Full segments belong to no thread.
#pragma once
#include <span>
#include <vector>

#include "base/near.h"
#include "base/sync.h"
#include "objects/segment.h"
#include "pager/pager.h"

namespace farside::objects {

// A pool of empty segments, which gets more from the pager. Thread-safe.
class SegmentPool {
 public:
  SegmentPool(pager::Pager& pager, SegmentTable& table) : pager_(pager), table_(table) {}
  // All segments are taken from this range of addresses, those for new objects from at most half of it: segments that
  // are being emptied occupy pages beside those to which their objects are moved.
  void use_only(std::byte* arena, size_t bytes) {
    LockGuard guard(mutex_);
    arena_ = arena, arena_left_ = bytes, may_grow_ = false;
    max_for_new_ = bytes / kPageSize / 2;
  }

  // The pages of this structure are evicted only when its eviction handler has been called. False: it has had
  // segments, whose pages are not marked for that.
  bool guard(unsigned structure) {
    LockGuard guard(mutex_);
    if (chunks_.empty()) guarded_ = structure;
    return guarded_ == structure;
  }
  bool is_guarded() {
    LockGuard guard(mutex_);
    return guarded_ != 0;
  }

  static constexpr size_t kChunkBytes = kMiB;  // committed at a time

  // Returns the page of an unused segment, near and writable as a rule. kNone: far memory, or the range, is full.
  PageIndex take(bool for_new);
  // Returns the page of a dead segment to which no owner refers.
  void give(PageIndex page);
  uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  // Lists the pages of all segments, used or not, from the `from`-th on. Returns how many.
  size_t list(size_t from, std::span<PageIndex> out);

  // Lists the runs of adjacent memory of all segments, used or not. Returns their number, which may be more than
  // out.size().
  size_t list_runs(std::span<std::span<std::byte>> out);

  // For a fork: no thread is inside take or give.
  void lock() ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() RELEASE(mutex_) { mutex_.unlock(); }

 private:
  using Pages = std::vector<PageIndex, NearAllocator<PageIndex>>;
  using Runs = std::vector<std::span<std::byte>, NearAllocator<std::span<std::byte>>>;
  static constexpr size_t kArenaBytes = 64 * kMiB;  // addresses reserved at a time
  static constexpr size_t kReadyPages = 16;         // made near at a time

  void take_over(PageIndex page) REQUIRES(mutex_);
  bool refill() REQUIRES(mutex_);
  void guard_page(PageIndex page) REQUIRES(mutex_);
  bool commit_chunk() REQUIRES(mutex_);
  void make_near(PageIndex first, size_t count);

  pager::Pager& pager_;
  SegmentTable& table_;
  Mutex mutex_;
  Pages near_ GUARDED_BY(mutex_);   // pages that are probably near; their content is garbage
  Pages fresh_ GUARDED_BY(mutex_);  // untouched, in order of addresses, the lowest last
  std::byte* arena_ GUARDED_BY(mutex_) = nullptr;
  size_t arena_left_ GUARDED_BY(mutex_) = 0;
  bool may_grow_ GUARDED_BY(mutex_) = true;
  uint64_t max_for_new_ GUARDED_BY(mutex_) = ~uint64_t{0};
  unsigned guarded_ GUARDED_BY(mutex_) = 0;  // the structure; 0: it has no eviction handler
  Pages chunks_ GUARDED_BY(mutex_);          // the first page of each
  Runs runs_ GUARDED_BY(mutex_);             // of adjacent chunks
  std::atomic<uint64_t> in_use_{0};
};

// The segment that is being filled, and the position in it. Used by one thread.
class ObjectLog {
 public:
  enum Use : bool { kUsed, kUnused };  // whether its objects are expected to be used soon; if not, they leave first

  explicit ObjectLog(Origin origin, unsigned structure = 0, Use use = kUsed)
      : origin_(origin), use_(use), structure_(structure) {}
  unsigned structure() const { return structure_; }
  bool is_unused() const { return use_ == kUnused; }
  // Places an object in the current segment. False: no room; call seal() and begin() with another segment.
  bool place(SegmentTable& table, size_t bytes, size_t alignment, PtrWord* word);
  bool has_segment() const { return page_ != SegmentStack::kNone; }
  PageIndex page() const { return page_; }
  void begin(SegmentTable& table, PageIndex page);
  // Ends the current segment and returns it; the caller subtracts the unit of the log from live_units.
  PageIndex end() { return std::exchange(page_, SegmentStack::kNone); }

 private:
  Origin origin_;
  Use use_;
  unsigned structure_;
  PageIndex page_ = SegmentStack::kNone;
  size_t offset_ = 0;
};

}  // namespace farside::objects
