// The data of each thread that faults: its read queue, stride detector, counters and its entry count of the fork gate.
// Slots are in near memory, found through one initial-exec thread-local pointer, and reused when threads end.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "base/sync.h"
#include "pager/huge/streams.h"
#include "pager/pages/frames.h"
#include "pager/pages/page_word.h"
#include "pager/shared/stats.h"
#include "pager/thread/prefetch.h"
#include "pager/thread/read_queue.h"
#include "remote/remote_store.h"

namespace farside::pager {

struct ThreadSlot : NearObject {
  uint16_t index = 0;
  std::atomic<int> tid{0};         // 0: free
  std::atomic<uint32_t> depth{0};  // how many times inside the gate; only the thread itself writes it
  ReadQueue reads;
  Prefetcher prefetcher;
  HugeStreams huge_streams;
  SpareFrames spare_frames;
  std::atomic<int32_t> pinned{0};  // pages that system calls of the thread use; only the thread itself writes it
  // Consecutive windows that no evictor mapped ahead; and for how many windows evictors are not requested to
  // (FetchPath::count_ahead).
  uint16_t ahead_misses = 0, ahead_pause = 0;
  CounterBlock counters;
  Histogram fault_times, frame_waits;
  Histogram refault_ages;   // of pages fetched again: the evictions since their own
  PageIndex last_page = 0;  // with repeats: detects a fault that is never resolved
  uint32_t repeats = 0;

  void count_pins(int32_t more) {
    pinned.store(pinned.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
};

// The thread that makes a request, and whether it may be suspended while pages are fetched for it.
struct Caller {
  ThreadSlot& thread;
  bool may_suspend = false;  // the caller is a fiber, whose worker may run others meanwhile (fiber/wait.h)
};

class ThreadRegistry {
 public:
  static constexpr size_t kMaxThreads = PageWord::kOwners;

  ThreadRegistry(remote::RemoteStore* store, Frames& frames) : store_(store), frames_(frames) {}

  // The calling thread's slot, assigned at first use. Async-signal-safe.
  ThreadSlot& current();
  // The same, or nullptr if it has none yet.
  ThreadSlot* attached();
  // To be called by a thread that ends: its slot is reused, its counters are kept.
  void detach();
  // Releases the spare frames of a thread. By any thread.
  void reclaim_spare(ThreadSlot& slot);
  // For a fork: no thread attaches or detaches meanwhile. In the child only the calling thread exists: all other slots
  // are freed, and all channels are gone.
  // Not analyzed: between the two is a fork.
  void before_fork() NO_THREAD_SAFETY_ANALYSIS { lock_.lock(); }
  void after_fork() NO_THREAD_SAFETY_ANALYSIS { lock_.unlock(); }
  void reset_in_child();

  // Closes all channels and frees all slots. No other thread uses far memory any more.
  void close_channels();

  template <typename Visit>
  void for_each(Visit visit) {
    size_t count = count_.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; i++) visit(*slots_[i]);
  }
  size_t count() const { return count_.load(std::memory_order_acquire); }
  // The slot with this number, or nullptr.
  ThreadSlot* at(size_t index) { return index < count() ? slots_[index] : nullptr; }

 private:
  ThreadSlot& attach();
  ThreadSlot* reuse() REQUIRES(lock_);
  void sweep() REQUIRES(lock_);
  void vacate(ThreadSlot& slot);

  remote::RemoteStore* store_;
  Frames& frames_;
  SpinLock lock_;                   // guards changes of slots_ and count_, and the assignment of slots
  ThreadSlot* slots_[kMaxThreads];  // not initialized beyond count_, so that a small process touches little memory
  std::atomic<size_t> count_{0};
};

// Many threads may be inside; one at a time can shut all others out. Fork uses it, because no page may change its state
// during a fork. To enter costs a store and a load of the thread's own slot and a load of one read-mostly flag.
class Gate {
 public:
  void enter(ThreadSlot& t) {
    if (t.depth.load(std::memory_order_relaxed) > 0 || owner_.load(std::memory_order_relaxed) == t.index + 1u) {
      bump(t, 1);
      return;
    }
    for (;;) {
      t.depth.store(1, std::memory_order_seq_cst);
      if (!shut_.load(std::memory_order_seq_cst)) return;
      t.depth.store(0, std::memory_order_seq_cst);
      uint32_t seen = opened_.value();
      if (shut_.load()) opened_.wait(seen, 1000000);
    }
  }
  // Never waits. False: the gate is shut or being shut.
  bool try_enter(ThreadSlot& t) {
    FARSIDE_DCHECK(t.depth.load(std::memory_order_relaxed) == 0);
    t.depth.store(1, std::memory_order_seq_cst);
    if (!shut_.load(std::memory_order_seq_cst)) return true;
    t.depth.store(0, std::memory_order_seq_cst);
    return false;
  }
  void leave(ThreadSlot& t) {
    FARSIDE_CHECK(t.depth.load(std::memory_order_relaxed) > 0);
    bump(t, static_cast<uint32_t>(-1));
  }

  // For code that acts without entering and checks afterwards. Never true for the thread that shut the gate.
  bool is_shut(const ThreadSlot& t) const {
    return shut_.load(std::memory_order_seq_cst) && owner_.load(std::memory_order_relaxed) != t.index + 1u;
  }

  // Shuts the gate and waits until no other thread is inside. The caller itself may still fault.
  void shut(ThreadRegistry& threads, ThreadSlot& self) NO_THREAD_SAFETY_ANALYSIS;  // between the two is a fork
  void open() NO_THREAD_SAFETY_ANALYSIS;
  void reset_in_child() { opened_.reset_in_child(); }

 private:
  static void bump(ThreadSlot& t, uint32_t by) {
    t.depth.store(t.depth.load(std::memory_order_relaxed) + by, std::memory_order_release);
  }
  Mutex mutex_;  // one forking thread at a time
  std::atomic<bool> shut_{false};
  std::atomic<uint32_t> owner_{0};  // slot index + 1 of the thread that shut the gate
  Event opened_;
};

// Enters the gate for its lifetime.
class InGate {
 public:
  InGate(Gate& gate, ThreadSlot& thread) : gate_(gate), thread_(thread) { gate_.enter(thread_); }
  ~InGate() { gate_.leave(thread_); }
  InGate(const InGate&) = delete;
  InGate& operator=(const InGate&) = delete;

 private:
  Gate& gate_;
  ThreadSlot& thread_;
};

}  // namespace farside::pager
