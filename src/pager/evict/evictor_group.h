// The evictor threads, and how they are woken, paused and stopped. The first thread works when free frames fall below
// the low-water mark; each further one when they fall to half of the level of the one before. So as many work as the
// rate of faults requires (docs/decisions/0011). Evictors also map windows that were fetched ahead, and the first one
// sizes near memory and calls the regular work of the preload library.
#pragma once
#include <memory>

#include "base/core_sharing.h"
#include "base/service_thread.h"
#include "pager/evict/evictor.h"
#include "pager/pages/budget.h"
#include "pager/size/sizing.h"

namespace farside::pager {

class Sampler;
struct ThreadSlot;

class EvictorGroup {
 public:
  // threads: the number of evictor threads; 0: one for every four processors, 1 to kMaxEvictors.
  EvictorGroup(const PageMemory& pages, const HugePageMemory& huge, Sizing& sizing, Sampler& sampler,
               ThreadRegistry& registry, remote::RemoteStore* store, unsigned threads);
  ~EvictorGroup();

  // The first evictor thread calls `work` at least ten times a second. Call before start(). `work` must not wait or
  // touch far memory.
  void call_regularly(void (*work)()) { regular_work_ = work; }
  // What request_background_work() requests. `work` does a part of it at each call, without waiting; it returns false
  // if there was nothing to do. Call before start().
  void set_background_work(bool (*work)(void*), void* argument) {
    background_work_ = work, background_argument_ = argument;
  }
  // Sets the observer of evicted pages that hold objects, or removes it: nullptr. At any time. When it has been
  // removed, no evictor calls it any more.
  void set_observer(PageObserver* observer) {
    observer_.store(observer, std::memory_order_release);
    if (observer) return;
    pause();
    resume();
  }
  // The next batches begin with these pages. The caller has signals blocked.
  void evict_first(PageIndex first, uint64_t pages) { preferred_.push(first, pages); }
  // The program has freed the page, which is near (RangeOps::free). The caller has signals blocked.
  void add_freed(PageIndex page) { freed_.push(page); }
  // An evictor runs the background work soon. Async-signal-safe.
  void request_background_work();
  // The background work maps what the thread has read ahead. Async-signal-safe.
  void request_mapping(ThreadSlot& thread);
  // False for a while after an evictor that waited for the background work lost its processor to another thread.
  bool has_spare_core() const { return !core_.is_crowded(); }

  // Starts the threads. They block all signals, touch no far memory, and their system calls are not trapped by the
  // guard. Ends the process where it may have none.
  void start();
  // The same, for a program that runs: where it may have no more threads, it goes on without.
  void start_late();
  // Instead of start(): `begin` is called when an evictor is needed, or 2 MiB of frames are in use. It calls
  // Pager::start_threads_late(). It may be called under a fault, so it must be async-signal-safe. Most processes of a
  // tree never need one. Where the process has no descriptors left, it is called again at the next need. False: threads
  // cannot be started so.
  bool start_when_needed(void (*begin)());
  bool is_deferred() const { return deferred_.load(std::memory_order_relaxed) != nullptr; }
  // The same as if one was needed. Nothing if the threads run. Async-signal-safe.
  void start_if_deferred();
  void stop();
  // No thread is stopped any more: the process can create no others.
  void keep_threads() { kept_.store(true); }
  // Calls call() while none of the threads exists, and returns its result: for system calls that need a process of one
  // thread, or change what a new thread inherits. Not in a fork. Faults take frames beyond the limit meanwhile, and
  // afterwards if the process may create no thread.
  template <typename Call>
  long call_without_threads(Call call) {
    LockGuard guard(lifecycle_);
    if (!started() || kept_.load()) return call();
    stop();
    long result = call();
    start_late();
    return result;
  }

  // The first evictor makes a huge frame ready if one is wanted. Async-signal-safe.
  void request_frame();

  // Changes the limit of near memory while the program runs. Thread-safe.
  void set_local(SizeOrShare local) {
    budget_.set(local);
    wake();
  }
  // Wakes the evictors whose level the free frames have reached. Async-signal-safe; cheap while the evictors are awake.
  void wake() {
    for (unsigned i = 0; i < wanted_ && frames_.is_below(i); i++) wake(i);
  }

  // For a fork, or a change that no evictor may see half: waits until no batch is in flight; none starts one until
  // resume(). Not analyzed: between the two is the fork.
  void pause() NO_THREAD_SAFETY_ANALYSIS;
  void resume() NO_THREAD_SAFETY_ANALYSIS;
  void reset_in_child() NO_THREAD_SAFETY_ANALYSIS;
  bool started() const { return running_.load() > 0; }
  // False during a fork and while the threads are being started (libc may touch far memory in pthread_create): no
  // evictor would free a frame.
  bool available() const { return working_.load() > 0 && !pausing_.load(std::memory_order_relaxed); }

  void add_counters(Stats& stats) const;
  bool owns_fd(int fd) const;

 private:
  int start_all();
  void make(unsigned index);
  Status open_all();
  void postpone(const Status& why);
  int start_one(unsigned index);
  void run(unsigned index);
  bool is_wanted(unsigned index, bool working) const;
  bool work_in_background();
  void run_paused(unsigned index);
  uint64_t evictor_ns();
  void size();
  void relieve_waiting();
  void sleep(unsigned index);
  void wake(unsigned index) {
    start_if_deferred();
    EvictorSlot& slot = slots_[index];
    if (slot.asleep.load(std::memory_order_seq_cst) && slot.asleep.exchange(false)) slot.work.wake_all();
  }
  void wake_all();

  struct alignas(kCacheLine) EvictorSlot {
    Event work;  // signalled when there may be work
    std::atomic<bool> asleep{false};
    EvictorGroup* group = nullptr;
  };

  PageMemory pages_;  // with the next two: what each evictor gets
  HugePageMemory huge_;
  remote::RemoteStore* store_;
  Frames& frames_;
  Budget& budget_;
  FramePool& pool_;
  Sizing& sizing_;
  Sampler& sampler_;
  ThreadRegistry& registry_;
  unsigned wanted_;
  std::unique_ptr<Evictor> evictors_[kMaxEvictors];
  ServiceThread threads_[kMaxEvictors];
  EvictorSlot slots_[kMaxEvictors];
  void (*regular_work_)() = nullptr;
  bool (*background_work_)(void*) = nullptr;
  void* background_argument_ = nullptr;
  std::atomic<PageObserver*> observer_{nullptr};
  PageFifo freed_, preferred_;
  unsigned fruitless_ = 0;      // rounds of the first evictor in which no frame was released
  uint32_t released_seen_ = 0;  // Frames::released() then
  std::atomic<bool> background_wanted_{false};
  CoreSharing core_;
  std::atomic<unsigned> running_{0};  // evictors whose thread was started
  std::atomic<unsigned> working_{0};  // of these, evictors whose thread has begun to run
  std::atomic<unsigned> paused_{0};   // evictors that are halted by pause()
  std::atomic<bool> pausing_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> kept_{false};
  std::atomic<void (*)()> deferred_{nullptr};  // what starts the threads
  std::atomic<bool> postponed_{false};         // it has found no descriptors
  Mutex lifecycle_;                            // pause() to resume(), or a stop and a start; new in the child of a fork
  Event halted_;                               // signalled when an evictor has halted
};

}  // namespace farside::pager
