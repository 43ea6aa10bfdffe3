// How whole extents become near: 2 MiB are read into a huge frame of the pool, and the frame is moved into place.
// Called by the paths of faults (fault_path.h) and of reads (fetch_path.h).
//
// An extent is fetched whole if
//   - a stream reaches it (streams.h), and most of its pages are far. The next one is read into a frame while the
//   program works in the one before; the
//     fault at its first page moves the frame into place.
//   - most of its pages were used when it was near before, in whatever order (extent_density.h);
//   - its pages were never touched, near memory is not short, and the kernel would give the program a huge page there.
// Otherwise, or where the kernel refuses, its pages come one by one as without extents.
//
// The page words have the states of the pages, as for all other pages; docs/internals/extents.md has what is added.
//
// UFFDIO_MOVE maps writable, so another thread may write between the move and the write protection. Unless the thread
// is the only one of the program, such pages count as dirty (and are protected, with cow), and the sums of their
// content tell at the eviction which of them were written.
//
// Everything here but open() and advise() is async-signal-safe.
#pragma once
#include "abi/options.h"
#include "pager/context.h"
#include "pager/evictor_group.h"
#include "pager/extents/content_sums.h"
#include "pager/extents/extent_density.h"
#include "pager/extents/extent_queue.h"
#include "pager/extents/frame_pool.h"
#include "pager/pages/budget.h"
#include "pager/pages/page_table.h"
#include "pager/prefetch.h"
#include "pager/space/far_space.h"
#include "pager/thread_slot.h"

namespace farside::pager {

class ExtentPath {
 public:
  ExtentPath(const Context& context, HugePages use) : c_(context), use_(use) {}

  // Ordinary code. Without it, or where it finds that the kernel lacks what is needed, no extent is fetched whole.
  void open();
  bool is_open() const { return c_.pool.is_open(); }
  // For programs with processes that share its memory but are not its threads.
  void assume_other_writers() { other_writers_.store(true, std::memory_order_relaxed); }
  // The program's advice (MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_SEQUENTIAL, MADV_NORMAL) for a range of pages.
  void advise(PageIndex first, uint64_t count, int advice);

  // The range is mapped anew: earlier advice does not hold.
  void forget_advice(PageIndex first, uint64_t count);

  // A fault on a page that is kFar or kUntouched: makes its extent near if it should come whole. False: it should not,
  // or cannot.
  bool fault_in(const Caller& caller, PageIndex page, PageWord word, bool write);
  // A fault on a far page has fetched this one and the next ones.
  void record_fetch(PageIndex page, unsigned pages) {
    if (is_enabled() && extent_of(page) < c_.extents.count()) c_.density.record_fetch(extent_of(page), pages);
  }
  // Another fault of the thread, which completed a window that was fetched ahead.
  ExtentStreams::Stream& record_fault(ThreadSlot& thread, PageIndex page);
  // Shortens a window that would cross into an extent which the stream of the last fault will fetch whole.
  void shorten(ThreadSlot& thread, Window& window);
  // Starts to read an extent that the program has announced, if it should come whole; zeros where it was never touched.
  // wait: for a frame. Part of what is read may be near only when it is used. False: its pages should come one by one.
  bool fetch_announced(ThreadSlot& thread, ExtentIndex extent, bool write, bool wait);
  // If that stream has reached the end of an extent: starts to read the next one. False: it has not.
  bool start_next(ThreadSlot& thread, const Window& window, bool write);

  // A first write: whether all pages of the extent should be made writable, and that. As FaultPath::upgrade.
  bool upgrades_whole(PageIndex page, PageWord word);
  void upgrade(ThreadSlot& thread, PageIndex page, bool* read_only);

  // ---- Completion, as in fetch_path.h. The owner's read queue is locked. ----

  // Reads a part of the owner's extents without waiting. move: moves those that are complete into place. True:
  // something was done.
  bool advance(ThreadSlot& self, ThreadSlot& owner, bool move);
  // Completes all of them.
  void drain(ThreadSlot& self, ThreadSlot& owner);
  // The queue is not locked: completes the calling thread's fetch of the page's extent, and continues its stream.
  // False: another thread has.
  bool finish_own(ThreadSlot& thread, PageIndex page);

 private:
  // Where near memory is smaller, a few frames would be too large a part of it.
  static constexpr uint64_t kMinLimitPages = 16 * uint64_t{kExtentPages};

  bool is_enabled() const { return is_open() && c_.frames.limit() >= kMinLimitPages; }
  template <typename Visit>
  void for_each_extent(PageIndex first, uint64_t count, Visit visit);
  bool wants_first_touch(ExtentIndex extent) const;
  bool fill(ThreadSlot& thread, ExtentIndex extent, Slot slot, bool is_zero, ExtentQueue::Kind kind);
  bool fill_first_touch(ThreadSlot& thread, ExtentIndex extent);
  bool fill_stream(ThreadSlot& thread, ExtentIndex extent);
  bool fetch(ThreadSlot& thread, ExtentIndex extent, bool write, ExtentQueue::Kind kind);
  void start_ahead(ThreadSlot& thread, const ExtentStreams::Stream& stream, bool write);
  Slot take_frame(bool wait);
  ExtentFetch* start(ThreadSlot& thread, ExtentIndex extent, bool write, Slot slot);
  void submit(ThreadSlot& thread, ExtentFetch& fetch);
  static bool is_excluded(PageWord word);
  bool is_untouched(ExtentIndex extent);
  bool comes_whole(ExtentIndex extent);
  void claim(ThreadSlot& thread, ExtentIndex extent, ExtentBits* claimed, ExtentBits* empty);
  bool claim_page(ThreadSlot& thread, PageIndex page, bool* untouched);
  void unclaim(ExtentIndex extent, const ExtentBits& claimed, const ExtentBits& empty);
  bool claim_near(ExtentFetch& fetch);
  void copy_near(ExtentFetch& fetch);
  bool may_follow(const ExtentStreams::Stream& stream, ExtentIndex extent, ExtentIndex* next) const;
  bool read_some(ThreadSlot& self, ThreadSlot& owner, ExtentFetch& fetch, bool wait);
  void record_sums(ExtentFetch& fetch, unsigned begin, unsigned end);
  void finish(ThreadSlot& self, ThreadSlot& owner, ExtentFetch& fetch);
  void move_in(ThreadSlot& self, ExtentFetch& fetch);
  void copy_in(ThreadSlot& self, ExtentFetch& fetch, uint64_t moved);
  void publish(const ExtentFetch& fetch, bool alone);
  static ExtentQueue::Kind queue_of(const ExtentFetch& fetch);
  bool lift_protection(PageIndex first, size_t bytes);
  bool is_only_writer() const;
  void count_ahead(ThreadSlot& thread, const ExtentFetch& fetch);

  Context c_;
  HugePages use_;
  bool thp_always_ = false, thp_advised_ = false;  // what the kernel would do
  std::atomic<bool> other_writers_{false};
};

}  // namespace farside::pager
