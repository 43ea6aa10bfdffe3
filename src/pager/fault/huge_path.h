// How whole huge pages become near: 2 MiB are read into a huge frame of the pool, and the frame is moved into place.
// Called by the paths of faults (fault_path.h) and of reads (fetch_path.h).
//
// A huge page is fetched whole if
//   - a stream reaches it (streams.h), and most of its pages are far. The next one is read into a frame while the
//   program works in the one before; the
//     fault at its first page moves the frame into place.
//   - most of its pages were used when it was near before, in whatever order (huge_density.h);
//   - its pages were never touched, near memory is not short, and the kernel would give the program a huge page there.
// Otherwise, or where the kernel refuses, its pages come one by one as without huge pages.
//
// The page words have the states of the pages, as for all other pages; docs/internals/huge_pages.md has what is added.
//
// UFFDIO_MOVE maps writable, so another thread may write between the move and the write protection. Unless the thread
// is the only one of the program, such pages count as dirty (and are protected, with cow), and the sums of their
// content tell at the eviction which of them were written.
//
// Everything here but open() and advise() is async-signal-safe.
#pragma once
#include <span>
#include <string_view>

#include "abi/options.h"
#include "pager/evict/evictor_group.h"
#include "pager/huge/content_sums.h"
#include "pager/huge/frame_pool.h"
#include "pager/huge/huge_account.h"
#include "pager/huge/huge_density.h"
#include "pager/huge/huge_queue.h"
#include "pager/pages/budget.h"
#include "pager/pages/page_table.h"
#include "pager/shared/far_access.h"
#include "pager/shared/page_memory.h"
#include "pager/shared/sample_log.h"
#include "pager/space/far_space.h"
#include "pager/thread/prefetch.h"
#include "pager/thread/thread_slot.h"

namespace farside::pager {

class HugePath {
 public:
  HugePath(const PageMemory& pages, const HugePageMemory& huge, remote::RemoteStore* store, EvictorGroup& evictors,
           HugePages use)
      : space_(pages.space),
        table_(pages.table),
        policy_(pages.policy),
        frames_(pages.frames),
        budget_(pages.budget),
        twins_(pages.twins),
        samples_(pages.samples),
        huge_table_(huge.table),
        huge_queue_(huge.queue),
        density_(huge.density),
        pool_(huge.pool),
        account_(huge.account),
        store_(store),
        evictors_(evictors),
        use_(use) {}

  // Async-signal-safe. Without it, or where it finds that the kernel lacks what is needed, no huge page is fetched
  // whole.
  void open();
  bool can_open() const;
  bool is_open() const { return pool_.is_open(); }
  // For programs with processes that share its memory but are not its threads.
  void assume_other_writers() { other_writers_.store(true, std::memory_order_relaxed); }
  // The program's advice (MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_SEQUENTIAL, MADV_NORMAL) for a range of pages.
  void advise(PageIndex first, uint64_t count, int advice);

  // The range is mapped anew: earlier advice does not hold.
  void forget_advice(PageIndex first, uint64_t count);

  // A fault on a page that is kFar or kUntouched: makes its huge page near if it should come whole. False: it should
  // not, or cannot.
  bool fault_in(const Caller& caller, PageIndex page, PageWord word, bool write);
  // A fault on the first of these far pages, which had this word, has claimed them.
  void record_fetch(const ThreadSlot& thread, std::span<const PageIndex> pages, PageWord word);
  // Another fault of the thread, which completed a window that was fetched ahead.
  HugeStreams::Stream& record_fault(ThreadSlot& thread, PageIndex page);
  // Shortens a window that would cross into a huge page which the stream of the last fault will fetch whole.
  void shorten(ThreadSlot& thread, Window& window);
  // Starts to read a huge page that the program has announced, if it should come whole; zeros where it was never
  // touched. wait: for a frame. Part of what is read may be near only when it is used. False: its pages should come one
  // by one.
  bool fetch_announced(ThreadSlot& thread, HugeIndex huge, bool write, bool wait);
  // If that stream has reached the end of a huge page: starts to read the next one. False: it has not.
  bool start_next(ThreadSlot& thread, const Window& window, bool write);

  // A first write: whether all pages of the huge page should be made writable, and that. As FaultPath::upgrade.
  bool upgrades_whole(PageIndex page, PageWord word);
  void upgrade(ThreadSlot& thread, PageIndex page, bool* read_only);

  // ---- Completion, as in fetch_path.h. The owner's read queue is locked. ----

  // Reads a part of the owner's huge pages without waiting. move: moves those that are complete into place. True:
  // something was done.
  bool advance(ThreadSlot& self, ThreadSlot& owner, bool move);
  // Completes all of them.
  void drain(ThreadSlot& self, ThreadSlot& owner);
  // The queue is not locked: completes the calling thread's fetch of the page's huge page, and continues its stream.
  // False: another thread has.
  bool finish_own(ThreadSlot& thread, PageIndex page);

 private:
  // Where near memory is smaller, a few frames would be too large a part of it.
  static constexpr uint64_t kMinLimitPages = 16 * uint64_t{kHugePages};

  // Not while each use of a sampled page is to be seen.
  bool is_enabled() const { return is_open() && frames_.limit() >= kMinLimitPages && !samples_.is_open(); }
  std::string_view usable_setting(std::span<char> buffer) const;
  template <typename Visit>
  void for_each_huge(PageIndex first, uint64_t count, Visit visit);
  bool wants_first_touch(HugeIndex huge) const;
  bool fill(ThreadSlot& thread, HugeIndex huge, Slot slot, bool is_zero, HugeQueue::Kind kind);
  bool fill_first_touch(ThreadSlot& thread, HugeIndex huge);
  bool fill_stream(ThreadSlot& thread, HugeIndex huge);
  bool fetch_dense(ThreadSlot& thread, HugeIndex huge, bool write);
  bool fetch(ThreadSlot& thread, HugeIndex huge, bool write, HugeQueue::Kind kind);
  void start_ahead(ThreadSlot& thread, const HugeStreams::Stream& stream, bool write);
  Slot take_frame(bool wait);
  HugeFetch* start(ThreadSlot& thread, HugeIndex huge, bool write, Slot slot);
  void submit(ThreadSlot& thread, HugeFetch& fetch);
  static bool is_excluded(PageWord word);
  bool is_untouched(HugeIndex huge);
  unsigned count_far(HugeIndex huge) const;
  bool comes_whole(HugeIndex huge);
  void claim(ThreadSlot& thread, HugeIndex huge, HugeBits* claimed, HugeBits* empty);
  bool claim_page(ThreadSlot& thread, PageIndex page, bool* untouched);
  void unclaim(HugeIndex huge, const HugeBits& claimed, const HugeBits& empty);
  bool claim_near(HugeFetch& fetch);
  void copy_near(HugeFetch& fetch);
  bool may_follow(const HugeStreams::Stream& stream, HugeIndex huge, HugeIndex* next) const;
  bool read_some(ThreadSlot& self, ThreadSlot& owner, HugeFetch& fetch, bool wait);
  void record_sums(HugeFetch& fetch, unsigned begin, unsigned end);
  void finish(ThreadSlot& self, ThreadSlot& owner, HugeFetch& fetch);
  void move_in(ThreadSlot& self, HugeFetch& fetch);
  void copy_in(ThreadSlot& self, HugeFetch& fetch, uint64_t moved);
  void publish(const HugeFetch& fetch, bool alone);
  static HugeQueue::Kind queue_of(const HugeFetch& fetch);
  bool lift_protection(PageIndex first, size_t bytes);
  bool is_only_writer() const;
  void count_ahead(ThreadSlot& thread, const HugeFetch& fetch);

  FarSpace& space_;
  PageTable& table_;
  Policy& policy_;
  Frames& frames_;
  Budget& budget_;
  Twins& twins_;
  const SampleLog& samples_;
  HugeTable& huge_table_;
  HugeQueue& huge_queue_;
  HugeDensity& density_;
  FramePool& pool_;
  HugeAccount& account_;
  remote::RemoteStore* store_;
  EvictorGroup& evictors_;
  HugePages use_;
  bool thp_always_ = false, thp_advised_ = false;  // what the kernel would do
  std::atomic<bool> other_writers_{false};
};

}  // namespace farside::pager
