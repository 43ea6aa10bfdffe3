// Where objects come to lie: each thread fills a segment of its own, one object after the other, so that what is made
// or fetched together lies together (AIFM 5.2, Atlas 4.3). Full segments are left to themselves.
#pragma once
#include <span>
#include <vector>

#include "base/near.h"
#include "base/sync.h"
#include "objects/segment.h"
#include "pager/pager.h"

namespace farside::objects {

// Empty segments, and more of them from the pager. Thread-safe.
class SegmentPool {
 public:
  SegmentPool(pager::Pager& pager, SegmentTable& table) : pager_(pager), table_(table) {}
  // Its segments come from this range of addresses alone, new objects from half of it: segments that are being emptied
  // take room beside those that their objects come back to.
  void use_only(std::byte* arena, size_t bytes) {
    arena_ = arena, arena_left_ = bytes, may_grow_ = false;
    most_for_new_ = bytes / kPageSize / 2;
  }

  static constexpr size_t kChunkBytes = kMiB;  // committed at a time

  // An open segment that nobody else has, near and writable as a rule. kNone: far memory is full.
  PageIndex take(bool for_new);
  // A dead one that nobody can name any more.
  void give(PageIndex page);
  uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  // All segments that there are, used or not, some at a time: those from the `from`-th on. Returns how many.
  size_t list(size_t from, std::span<PageIndex> out);

  // fork: nobody is inside take or give.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  using Pages = std::vector<PageIndex, NearAllocator<PageIndex>>;
  static constexpr size_t kArenaBytes = 64 * kMiB;  // addresses reserved at a time
  static constexpr size_t kReadyPages = 16;         // brought near at a time

  bool refill();
  bool commit_chunk();
  void make_near(PageIndex first, size_t count);

  pager::Pager& pager_;
  SegmentTable& table_;
  Mutex mutex_;  // guards the fields below
  Pages near_;   // their pages are near as likely as not, and their content is of no use to anybody
  Pages fresh_;  // untouched, in order of addresses, the lowest last
  std::byte* arena_ = nullptr;
  size_t arena_left_ = 0;
  bool may_grow_ = true;
  uint64_t most_for_new_ = ~uint64_t{0};
  Pages chunks_;  // the first page of each
  std::atomic<uint64_t> in_use_{0};
};

// One line of objects. Belongs to one thread.
class ObjectLog {
 public:
  explicit ObjectLog(Origin origin, unsigned structure = 0) : origin_(origin), structure_(structure) {}
  unsigned structure() const { return structure_; }
  // Finds room in the current segment. False: there is none; seal() and begin() another one.
  bool place(SegmentTable& table, size_t bytes, size_t alignment, PtrWord* word);
  bool has_segment() const { return page_ != SegmentStack::kNone; }
  PageIndex page() const { return page_; }
  void begin(SegmentTable& table, PageIndex page);
  // No more objects come to the segment. Returns it; the caller takes the log's unit off live_units.
  PageIndex end() { return std::exchange(page_, SegmentStack::kNone); }

 private:
  Origin origin_;
  unsigned structure_;
  PageIndex page_ = SegmentStack::kNone;
  size_t offset_ = 0;
};

}  // namespace farside::objects
