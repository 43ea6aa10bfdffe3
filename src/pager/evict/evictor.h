// One evictor: it removes pages from near memory in batches and writes the dirty ones to the memory server. Threads of
// the program never evict (MAGE P1). evictor_group.h has the threads that run evictors; policy/ chooses the pages.
//
// A batch passes five numbered phases. Unmapping is synchronous, so one evictor selects, holds and unmaps one batch at
// a time; up to three more batches are in flight meanwhile, with their writes (a part of the pipeline of MAGE 4.1):
//   1 select   Candidates of the policy: the more frames are missing, the more pages. Each page is moved from kNear to
//              kEvicting by compare-and-swap, so that no other thread maps, unprotects, discards or selects it. Threads
//              that have it mapped writable can still write it.
//   2 hold     One vmsplice of all dirty pages into the pipe of the batch. The pipe references the frames; nothing is
//              copied.
//   3 unmap    One process_madvise(MADV_DONTNEED) for all pages: one TLB shootdown. After it no store can reach the
//              frames, so the pipe references the final content. Clean pages are released at once.
//   4 write    Pages with a twin (twins.h) are compared with it, and their changed lines are gathered from many pages
//              into a few requests, each of which the server executes completely or not at all. Other pages are sent
//              from the pipe, at most kWritePages in a request, so that reads of other threads do not wait long behind
//              a write. Other batches proceed while the requests are in flight.
//   5 release  When all requests of the batch are acknowledged, its pages become kFar and their frames are free.
//
// Why no write is lost: a store between phases 2 and 3 goes to the frame that the pipe references, since the mapping is
// writable. A page that is dirty but not mapped writable (after a fork, cow bit) is write-protected: a store faults,
// finds kEvicting, and waits. See docs/internals/page_states.md.
#pragma once
#include "base/log.h"
#include "base/near.h"
#include "base/os.h"
#include "base/sync.h"
#include "pager/evict/huge_evictor.h"
#include "pager/pages/budget.h"
#include "pager/pages/frames.h"
#include "pager/pages/page_table.h"
#include "pager/pages/twins.h"
#include "pager/policy/policy.h"
#include "pager/shared/far_access.h"
#include "pager/shared/page_memory.h"
#include "pager/shared/stats.h"
#include "pager/space/far_space.h"
#include "remote/remote_store.h"

namespace farside::pager {

class SampleLog;

// Informed of pages that hold far objects before they are evicted. Called by evictors, while the pages are in kEvicting
// and still mapped. Must not wait, allocate or touch far memory.
class PageObserver {
 public:
  virtual ~PageObserver() = default;
  // False: the page stays near for now. The observer has it evicted (Paging::evict_first) or discarded when it may
  // leave.
  virtual bool may_evict(PageIndex) { return true; }
  // How many pages will soon leave after may_evict() has refused them. No others are evicted in their place.
  virtual size_t leaving() const { return 0; }
  virtual void on_evict(std::span<const PageIndex> pages) = 0;
};

// A bounded FIFO of runs of pages; where it is full, the oldest run is dropped. Thread-safe; the caller has signals
// blocked.
class PageFifo {
 public:
  void push(PageIndex first, uint64_t pages = 1) {
    LockGuard guard(lock_);
    Run& last = runs_[(first_ + count_ + kMax - 1) % kMax];
    if (count_ > 0 && last.next + last.left == first) {
      last.left += static_cast<uint32_t>(pages);
      return;
    }
    if (count_ == kMax) drop_first();
    runs_[(first_ + count_) % kMax] = {first, static_cast<uint32_t>(pages)};
    count_++;
  }
  size_t take(std::span<PageIndex> out) {
    if (count_ == 0) return 0;
    LockGuard guard(lock_);
    FARSIDE_DCHECK(count_ <= kMax && first_ < kMax);
    size_t taken = 0;
    while (taken < out.size() && count_ > 0) {
      Run& run = runs_[first_];
      out[taken++] = run.next++;
      if (--run.left == 0) drop_first();
    }
    return taken;
  }
  bool is_empty() const { return count_ == 0; }

 private:
  struct Run {
    PageIndex next;
    uint32_t left;  // pages
  };
  void drop_first() REQUIRES(lock_) {
    first_ = (first_ + 1) % kMax;
    count_--;
  }

  static constexpr size_t kMax = 4096;
  SpinLock lock_;                     // count_ is also read without it
  Run runs_[kMax] GUARDED_BY(lock_);  // memory is touched as runs come
  size_t first_ GUARDED_BY(lock_) = 0;
  std::atomic<size_t> count_{0};
};

inline constexpr size_t kMinBatchPages = 32;
inline constexpr size_t kBatchPages = 256;  // the capacity of a pipe that an unprivileged process may ask for
inline constexpr size_t kWritePages = 32;   // of one request
inline constexpr size_t kLogBytes = 256 * kKiB;

struct Batch : NearObject {
  PageIndex pages[kBatchPages];
  size_t count = 0;
  PageIndex dirty[kBatchPages];  // pages without a twin first
  size_t dirty_count = 0, whole_count = 0;
  int pipe_read = -1, pipe_write = -1;
  size_t room = 0;  // pages that the pipe can hold
  struct Write {
    transport::Token token;  // 0: acknowledged
    uint64_t pages, sent;    // number of pages; time of sending, in ticks
    Twins::Method method;
  };
  static constexpr size_t kMaxWrites = 64;
  Write writes[kMaxWrites];
  size_t write_count = 0;
  size_t unwritten = 0;      // requests in flight, plus one until the last is submitted; 0: the batch is free
  std::byte* log = nullptr;  // changed lines to send, one after the other; kLogBytes, allocated at first use
};

// The work of one evictor thread. Except for construction, counters() and owns_fd(), all functions are called by that
// thread, or while it does not run.
class Evictor final : public NearObject, private ChannelOwner {
 public:
  static constexpr unsigned kIdleSpins = 400;  // 10 to 20 us: shorter than it takes to wake the thread
  static constexpr uint64_t kWriteSleepNs = 20'000;

  // freed, preferred: pages that are evicted before those that the policy selects. Of `freed` only those that are free
  // still.
  Evictor(const PageMemory& pages, const HugePageMemory& huge, remote::RemoteStore* store, unsigned index,
          const std::atomic<PageObserver*>& observer, PageFifo& freed, PageFifo& preferred)
      : space_(pages.space),
        table_(pages.table),
        policy_(pages.policy),
        frames_(pages.frames),
        budget_(pages.budget),
        twins_(pages.twins),
        pool_(huge.pool),
        store_(store),
        index_(index),
        observer_(observer),
        freed_(freed),
        preferred_(preferred),
        huge_(pages, huge, store, index, counters_, *this) {}
  ~Evictor();

  Status open();  // opens the pipes and the channel
  // Completes batches whose writes are acknowledged, then starts a batch if frames are wanted. False: there was nothing
  // to do.
  bool step(bool frames_wanted);
  // Completes what is acknowledged, of pages and of huge pages. True: there was progress.
  bool poll();
  // Polls until there is progress, and sleeps where there is none for a while.
  void wait_for_write() override;
  // Makes these pages far, as far as they are near and not pinned, although no frame is wanted. Adds them to the log.
  void make_far(std::span<const PageIndex> pages, SampleLog& log);
  // Waits until no batch is in flight.
  void drain();
  bool busy() const { return in_flight_ > 0 || huge_.busy(); }
  // How many pages the observer will have evicted soon.
  size_t leaving() const;
  // Updates the counter of processor time. Called by the thread that runs this evictor.
  void count_cpu_time() { counters_.set(Counter::kEvictorCpuNs, os::thread_cpu_ns()); }
  const CounterBlock& counters() const { return counters_; }
  // Admits frames beyond the limit for the threads that wait. Called by the thread that runs this evictor.
  void relieve();
  bool owns_fd(int fd) const;
  // In the child of a fork: closes the pipes, which are shared with the parent. The channel was closed by the store
  // before.
  void reset_in_child();

 private:
  static constexpr size_t kBatches = 4;
  static constexpr size_t kCompared = 16;  // pages that are read from the pipe at a time to be compared
  static constexpr unsigned kMaxRuns = 8;  // of changed lines in a page; a page with more is written whole

  bool start(Batch& batch);
  void enlarge_pipe(Batch& batch);
  size_t select(Batch& batch);
  size_t take(Batch& batch, std::span<const PageIndex> candidates);
  void remove(Batch& batch, SampleLog* log);
  void add_samples(const Batch& batch, SampleLog& log);
  template <typename Wanted>
  size_t take_near(PageFifo& from, std::span<PageIndex> out, Wanted is_wanted);
  void break_up_huge(std::span<const PageIndex> pages);
  bool claim(PageIndex page, PageWord* word);
  void put_back(PageIndex page);
  bool may_leave(PageIndex page);
  void notify_observer(const Batch& batch);
  void hold(Batch& batch);
  void skip_unheld(Batch& batch, size_t held);
  void unmap(Batch& batch);
  void release_clean(Batch& batch);
  void write(Batch& batch);
  void write_whole(Batch& batch);
  void write_pages(Batch& batch, size_t first, size_t end);
  void write_lines(Batch& batch);
  void read_held(Batch& batch, size_t pages);
  void submit(Batch& batch, std::span<const transport::ByteRange> ranges, size_t pages, int pipe);
  void finish(Batch& batch);
  bool poll_writes();
  bool poll_writes_of(Batch& batch);
  void record_acknowledged(const Batch::Write& write);
  void close_pipes();

  FarSpace& space_;
  PageTable& table_;
  Policy& policy_;
  Frames& frames_;
  Budget& budget_;
  Twins& twins_;
  FramePool& pool_;
  remote::RemoteStore* store_;
  unsigned index_;
  const std::atomic<PageObserver*>& observer_;
  PageFifo& freed_;
  PageFifo& preferred_;
  transport::Channel* channel_ = nullptr;
  Batch batches_[kBatches];
  bool may_enlarge_ = true;  // the kernel has not refused a larger pipe
  size_t in_flight_ = 0;
  uint64_t last_acknowledged_ = 0;  // when the last write was acknowledged, in ticks
  std::byte* held_ = nullptr;       // content of kCompared evicted pages, for comparison; allocated at first use
  CounterBlock counters_;
  HugeEvictor huge_;
};

}  // namespace farside::pager
