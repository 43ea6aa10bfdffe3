// Eviction: background threads that keep free frames above a low-water mark. Application threads never evict (MAGE P1).
// The first one does what it can; each further one comes in where the free frames fall to half of where the one before
// it began, so as many work as the fault rate needs.
//
// A batch goes through five numbered phases, and several batches of one evictor are under way at once, each in another
// phase (MAGE 4.1, in user space):
//   1 select   kMinBatchPages to kBatchPages pages by policy, the more, the more frames are missing; each moves kNear
//   -> kEvicting by compare-and-swap, so nobody else
//              maps, unprotects, discards or selects it. Writers that have the page mapped go on writing.
//   2 hold     one vmsplice of all dirty pages into the batch's pipe: references to the frames, nothing is copied.
//   3 unmap    one process_madvise(MADV_DONTNEED) over all pages: one TLB shootdown. After it no write can happen, and
//              what the pipe holds is the final content. Clean pages are gone and released at once.
//   4 write    of pages with a twin (twins.h) the lines that differ from it are gathered from many pages into a few
//              requests, each of which the server applies whole or not at all; of others the pipe's bytes go to the
//              channel, in requests of some pages, so that a read of somebody else never
//   waits
//              long behind them; they are then under way while other batches proceed.
//   5 release  on acknowledgement the pages become kFar and their frames go back to the budget.
// Why no write is lost: between 2 and 3 a writer writes into the held frame itself, since its mapping is writable; a
// page whose mapping is not writable although it is dirty (after a fork, cow bit) is write-protected, so that a writer
// faults, finds kEvicting, and waits. See docs/internals/page_states.md.
#pragma once
#include "base/log.h"
#include "base/near.h"
#include "base/os.h"
#include "base/sync.h"
#include "pager/budget.h"
#include "pager/context.h"
#include "pager/far_space.h"
#include "pager/frames.h"
#include "pager/page_table.h"
#include "pager/policy/policy.h"
#include "pager/stats.h"
#include "pager/twins.h"
#include "remote/remote_store.h"

namespace farside::pager {

// The layer above that wants to know which of its pages leave. Called by evictors, with the pages in kEvicting and
// still mapped: must not wait, allocate or touch far memory.
class PageObserver {
 public:
  virtual ~PageObserver() = default;
  virtual void leaving(std::span<const PageIndex> pages) = 0;
};

// Pages, first in, first out. Bounded; what does not fit is forgotten. Any thread, with signals blocked.
class PageFifo {
 public:
  void push(PageIndex page) {
    LockGuard guard(lock_);
    if (count_ == kMax) return;
    pages_[(first_ + count_) % kMax] = page;
    count_++;
  }
  size_t take(std::span<PageIndex> out) {
    if (count_ == 0) return 0;
    LockGuard guard(lock_);
    FARSIDE_DCHECK(count_ <= kMax && first_ < kMax);
    size_t taken = 0;
    for (; taken < out.size() && count_ > 0; taken++) {
      out[taken] = pages_[first_];
      first_ = (first_ + 1) % kMax;
      count_--;
    }
    return taken;
  }

 private:
  static constexpr size_t kMax = 1024;
  SpinLock lock_;  // guards the others; count_ is looked at without it
  PageIndex pages_[kMax] = {};
  size_t first_ = 0;
  std::atomic<size_t> count_{0};
};

inline constexpr size_t kMinBatchPages = 32;
inline constexpr size_t kBatchPages = 256;  // what an unprivileged pipe can hold
inline constexpr size_t kWritePages = 32;   // in one request
inline constexpr size_t kLogBytes = 256 * kKiB;

struct Batch : NearObject {
  PageIndex pages[kBatchPages];
  size_t count = 0;
  PageIndex dirty[kBatchPages];  // those without a twin first
  size_t dirty_count = 0, whole_count = 0;
  int pipe_read = -1, pipe_write = -1;
  struct Write {
    transport::Token token;  // 0: acknowledged
    uint64_t pages, sent;    // in ticks
    Twins::Method method;
  };
  static constexpr size_t kMaxWrites = 64;
  Write writes[kMaxWrites];
  size_t write_count = 0;
  size_t unwritten = 0;      // requests under way, and one while more are to come; 0: the batch is free
  std::byte* log = nullptr;  // the lines that go, one after the other; kLogBytes, made when first needed
};

// One evictor thread's work, without the thread.
class Evictor : public NearObject {
 public:
  Evictor(const Context& context, unsigned index, const std::atomic<PageObserver*>& observer, PageFifo& first_out)
      : c_(context), index_(index), observer_(observer), first_out_(first_out) {}
  ~Evictor();

  Status open();  // pipes and channel
  // Does one piece of work: releases what was acknowledged, or starts a batch if frames are wanted. False: nothing to
  // do.
  bool step(bool frames_wanted);
  // Waits until no batch is under way.
  void drain();
  bool busy() const { return in_flight_ > 0; }
  // Of the thread that runs this evictor.
  void count_cpu_time() { counters_.set(Counter::kEvictorCpuNs, os::thread_cpu_ns()); }
  const CounterBlock& counters() const { return counters_; }
  bool owns_fd(int fd) const;
  // In the child of a fork: the channel is gone already, and the pipes are shared with the parent and must go.
  void reset_in_child();

 private:
  static constexpr size_t kBatches = 4;
  static constexpr size_t kCompared = 16;  // pages
  static constexpr unsigned kMaxRuns = 8;  // of lines in a page that does not go whole

  bool start(Batch& batch);
  size_t select(Batch& batch);
  bool claim(PageIndex page, PageWord* word);
  void notify_observer(const Batch& batch);
  void hold(Batch& batch);
  void give_up_unheld(Batch& batch, size_t held);
  void unmap(Batch& batch);
  void release_clean(Batch& batch);
  void write(Batch& batch);
  void write_whole(Batch& batch);
  void write_pages(Batch& batch, size_t first, size_t end);
  void write_lines(Batch& batch);
  void read_held(Batch& batch, size_t pages);
  void submit(Batch& batch, std::span<const transport::Segment> segments, size_t pages, int pipe);
  void finish(Batch& batch);
  bool poll_writes();
  bool poll_writes_of(Batch& batch);
  void note_acknowledged(const Batch::Write& write);
  void close_pipes();

  Context c_;
  unsigned index_;
  const std::atomic<PageObserver*>& observer_;
  PageFifo& first_out_;  // what somebody has done with leaves before what the policy names
  transport::Channel* channel_ = nullptr;
  Batch batches_[kBatches];
  size_t in_flight_ = 0;
  uint64_t last_acknowledged_ = 0;  // a write, in ticks
  std::byte* held_ = nullptr;       // pages as they left, for comparison; kCompared of them, made when first needed
  CounterBlock counters_;
};

}  // namespace farside::pager
