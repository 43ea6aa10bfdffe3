// The evictor threads, and the signals between them and the rest. The first thread works when free frames fall below
// the low-water mark; each further one when they fall to half of where the one before it began, so as many work as the
// fault rate needs (docs/decisions/0011).
#pragma once
#include <pthread.h>

#include <memory>

#include "base/core_sharing.h"
#include "pager/evictor.h"

namespace farside::pager {

class EvictorGroup {
 public:
  // threads: at most so many work at once; 0: one for every four processors.
  EvictorGroup(const Context& context, unsigned threads);
  ~EvictorGroup();

  // Has one of the threads call this at least ten times a second. Before start(); it must not wait or touch far memory.
  void call_regularly(void (*work)()) { regular_work_ = work; }
  // What request_background_work asks for: some of it at each call, without waiting. False: there was nothing to do.
  // Before start().
  void set_background_work(bool (*work)(void*), void* context) {
    background_work_ = work, background_context_ = context;
  }
  // Told of pages that hold objects when they leave. At any time; nullptr: nobody.
  void set_observer(PageObserver* observer) { observer_.store(observer, std::memory_order_release); }
  // This page next. With signals blocked.
  void evict_first(PageIndex page) { first_out_.push(page); }
  // Has an evictor do it soon. Async-signal-safe.
  void request_background_work();
  // False for a while after an evictor that waited for what it was asked to do had to wait for its core, too.
  bool has_spare_core() const { return !core_.is_crowded(); }

  // Starts the threads; they block all signals. Without the guard's knowledge: they run unguarded and touch no far
  // memory.
  void start();
  void stop();

  // Frames are getting low. Async-signal-safe, and cheap when the evictors are awake.
  void wake() {
    for (unsigned i = 0; i < wanted_ && c_.frames.is_below(i); i++) wake(i);
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
  bool evicted_recently(PageWord word) const;

  void add_counters(Stats& stats) const;
  bool owns_fd(int fd) const;

 private:
  void start_one(unsigned index);
  void run(unsigned index);
  bool is_wanted(unsigned index, bool working) const;
  bool work_in_background();
  void run_paused(unsigned index);
  void sleep(unsigned index);
  void wake(unsigned index) {
    EvictorSlot& slot = slots_[index];
    if (slot.asleep.load(std::memory_order_seq_cst) && slot.asleep.exchange(false)) slot.work.wake_all();
  }
  void wake_all();

  struct alignas(kCacheLine) EvictorSlot {
    Event work;  // there may be something to do
    std::atomic<bool> asleep{false};
  };

  Context c_;
  unsigned wanted_;
  std::unique_ptr<Evictor> evictors_[kMaxEvictors];
  pthread_t threads_[kMaxEvictors] = {};
  EvictorSlot slots_[kMaxEvictors];
  void (*regular_work_)() = nullptr;
  bool (*background_work_)(void*) = nullptr;
  void* background_context_ = nullptr;
  std::atomic<PageObserver*> observer_{nullptr};
  PageFifo first_out_;
  std::atomic<bool> background_wanted_{false};
  CoreSharing core_;
  std::atomic<unsigned> running_{0};  // evictors whose thread was started
  std::atomic<unsigned> working_{0};  // of these, those that have come to life
  std::atomic<unsigned> paused_{0};   // evictors that stand still
  std::atomic<bool> pausing_{false};
  std::atomic<bool> stopping_{false};
  Event still_;  // an evictor has come to a halt
};

}  // namespace farside::pager
