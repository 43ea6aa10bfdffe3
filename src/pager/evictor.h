// Eviction: background threads that keep free frames above a low-water mark. Application threads never evict (MAGE P1).
//
// A batch goes through five numbered phases, and several batches of one evictor are under way at once, each in another
// phase (MAGE 4.1, in user space):
//   1 select   up to kBatchPages pages by policy; each moves kNear -> kEvicting by compare-and-swap, so nobody else
//              maps, unprotects, discards or selects it. Writers that have the page mapped go on writing.
//   2 hold     one vmsplice of all dirty pages into the batch's pipe: references to the frames, nothing is copied.
//   3 unmap    one process_madvise(MADV_DONTNEED) over all pages: one TLB shootdown. After it no write can happen, and
//              what the pipe holds is the final content. Clean pages are gone and released at once.
//   4 write    the pipe's bytes go to the channel; the request is then under way while other batches proceed.
//   5 release  on acknowledgement the pages become kFar and their frames go back to the budget.
// Why no write is lost: between 2 and 3 a writer writes into the held frame itself, since its mapping is writable; a
// page whose mapping is not writable although it is dirty (after a fork, cow bit) is write-protected, so that a writer
// faults, finds kEvicting, and waits. See docs/page_states.md.
#pragma once
#include <pthread.h>

#include "base/near.h"
#include "base/sync.h"
#include "pager/budget.h"
#include "pager/far_space.h"
#include "pager/frames.h"
#include "pager/page_table.h"
#include "pager/policy.h"
#include "pager/stats.h"
#include "remote/remote_store.h"

namespace farside::pager {

struct ThreadSlot;

struct EvictorContext {
  remote::RemoteStore* store;
  FarSpace& space;
  PageTable& table;
  Policy& policy;
  Frames& frames;
  Budget& budget;
};

inline constexpr size_t kBatchPages = 128;

struct Batch : NearObject {
  PageIndex pages[kBatchPages];
  size_t count = 0;
  PageIndex dirty[kBatchPages];
  size_t dirty_count = 0;
  int pipe_read = -1, pipe_write = -1;
  transport::Token token = 0;  // of the write under way; 0: the batch is free
};

// One evictor thread's work, without the thread.
class Evictor : public NearObject {
 public:
  Evictor(const EvictorContext& context, unsigned index) : c_(context), index_(index) {}
  ~Evictor();

  Status open();  // pipes and channel
  // Does one piece of work: releases what was acknowledged, or starts a batch if frames are wanted. False: nothing to
  // do.
  bool step(bool frames_wanted);
  // Waits until no batch is under way.
  void drain();
  bool busy() const { return in_flight_ > 0; }
  const CounterBlock& counters() const { return counters_; }
  bool owns_fd(int fd) const;
  // In the child of a fork: the channel is gone already, and the pipes are shared with the parent and must go.
  void reset_in_child();

 private:
  static constexpr size_t kBatches = 4;

  bool start(Batch& batch);
  size_t select(Batch& batch);
  bool claim(PageIndex page, PageWord* word);
  void hold(Batch& batch);
  void give_up_unheld(Batch& batch, size_t held);
  void unmap(Batch& batch);
  void release_clean(Batch& batch);
  void write(Batch& batch);
  void finish(Batch& batch);
  bool poll_writes();
  void close_pipes();

  EvictorContext c_;
  unsigned index_;
  transport::Channel* channel_ = nullptr;
  Batch batches_[kBatches];
  size_t in_flight_ = 0;
  CounterBlock counters_;
};

// The evictor threads, and the signals between them and the rest.
class EvictorGroup {
 public:
  EvictorGroup(const EvictorContext& context, unsigned threads) : c_(context), wanted_(threads) {}
  ~EvictorGroup();

  // Has one of the threads call this at least ten times a second. Before start(); it must not wait or touch far memory.
  void call_regularly(void (*work)()) { regular_work_ = work; }

  // Starts the threads; they block all signals. Without the guard's knowledge: they run unguarded and touch no far
  // memory.
  void start();
  void stop();

  // Frames are getting low. Async-signal-safe, and cheap when the evictors are awake.
  void wake() {
    if (asleep_.load(std::memory_order_seq_cst) != 0) work_.wake_all();
  }

  // fork: waits until no batch is under way and keeps the evictors still, until resume().
  void pause();
  void resume();
  void reset_in_child();
  bool started() const { return running_.load() > 0; }
  // False around a fork and while the threads are being started (libc may touch far memory in pthread_create), when
  // nobody would free a frame.
  bool available() const { return working_.load() > 0 && !pausing_.load(std::memory_order_relaxed); }

  // True if the page left within about the last quarter of a budget's worth of evictions.
  bool left_recently(PageWord word) const;

  void add_counters(Stats& stats) const;
  bool owns_fd(int fd) const;

 private:
  static constexpr unsigned kMaxEvictors = 4;
  void start_one(unsigned index);
  void run(Evictor& evictor);
  bool wanted(bool working) const { return working ? !c_.frames.comfortable() : c_.frames.low(); }
  void run_paused(Evictor& evictor);
  void sleep();

  EvictorContext c_;
  unsigned wanted_;
  Evictor* evictors_[kMaxEvictors] = {};
  pthread_t threads_[kMaxEvictors] = {};
  void (*regular_work_)() = nullptr;
  std::atomic<unsigned> running_{0};  // evictors whose thread was started
  std::atomic<unsigned> working_{0};  // of these, those that have come to life
  std::atomic<unsigned> asleep_{0};
  std::atomic<unsigned> paused_{0};  // evictors that stand still
  std::atomic<bool> pausing_{false};
  std::atomic<bool> stopping_{false};
  Event work_;   // there may be something to do
  Event still_;  // an evictor has come to a halt
};

}  // namespace farside::pager
