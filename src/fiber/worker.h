// One thread that runs fibers: its queues and its loop. The loop runs on the thread's own stack; a fiber that stops
// switches to it, and only there, off the fiber's stack, the fiber is handed to whoever will make it ready again.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/near.h"
#include "base/os.h"
#include "base/sync.h"
#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"

namespace farside::fibers {

class Runtime;

// Fibers that may run, on any worker; those inside a scope of far objects first, since objects wait for its end (AIFM
// 5.4). The owner pushes and pops, others steal.
class RunQueue {
 public:
  void push(Fiber* fiber);
  // in_turn: the oldest one that is not in a scope, where there is one.
  Fiber* pop(bool in_turn = false);
  // Moves up to half of the fibers, the oldest, to `to`; none while somebody else holds the lock.
  void give_half(FiberList* to);
  size_t size() const { return size_.load(); }

 private:
  FiberLock lock_;  // guards the lists; size_ is written under it
  FiberList in_scope_, others_;
  std::atomic<size_t> size_{0};  // sequentially consistent: half of the promise that no wake-up is lost (runtime.h)
};

class Worker : public NearObject {
 public:
  explicit Worker(Runtime* runtime, unsigned index) : runtime_(runtime), index_(index) {}

  // Runs fibers in the calling thread until the runtime is done.
  void work();

  Runtime& runtime() { return *runtime_; }
  Fiber* current() const { return current_; }
  RunQueue& ready() { return ready_; }
  os::SignalSet normal_mask() const { return normal_mask_; }

  // Of the running fiber, called on its stack. When suspend() returns, the fiber may be on another worker.
  // after(fiber, arg) is called in the loop, once the fiber may be resumed by somebody else.
  using After = void (*)(Fiber*, void*);
  void suspend(After after, void* arg);
  [[noreturn]] void end_fiber(After after);
  void wait_until(bool (*is_ready)(void*), void* arg);
  bool polls_soon() const { return turns_ - last_long_turn_ > kShortTurns; }

  // Takes a fiber back that yielded.
  void requeue(Fiber* fiber);

  // Wakes the worker if it sleeps and nobody else woke it already. True: it did sleep.
  bool wake();

  bool sleeps_on_event() const { return sleep_.load() == Sleep::kOnEvent; }
  bool sleeps_on_sockets() const { return sleep_.load() == Sleep::kOnSockets; }

  // Lets the worker's fetches come in. For threads that wait for a FiberLock.
  void keep_fetching();

 private:
  // After so many turns that were all short, the next is thought to be short.
  static constexpr uint64_t kShortTurns = 4;

  enum class Sleep : uint32_t { kAwake, kOnEvent, kOnSockets };

  Fiber* next();
  Fiber* steal();
  void run(Fiber* fiber);
  bool time_to_poll();
  void poll_waiting();
  void idle(unsigned idle_rounds);
  bool spin();
  void sleep();
  void set_mask(os::SignalSet mask);
  void block_signals();

  Runtime* runtime_;
  unsigned index_;
  Fiber* volatile current_ = nullptr;
  Context context_;
  After after_ = nullptr;
  void* after_argument_ = nullptr;

  RunQueue ready_;
  FiberList waiting_;   // in wait_until; this thread's alone
  FiberList returned_;  // were in wait_until, go on first
  unsigned round_ = 0;
  uint64_t turns_ = 0, last_long_turn_ = 0;  // of fibers: how often one ran
  uint64_t polled_ = 0, poll_interval_ = 0;  // in ticks
  bool searched_ = false;                    // was idle, and pushers may have counted on it to find their fibers

  os::SignalSet normal_mask_ = 0;           // as the thread came
  os::SignalSet mask_ = 0;                  // the thread's now, while the loop runs
  CaughtExceptions* exceptions_ = nullptr;  // the thread's own; null: the program has none

  std::atomic<Sleep> sleep_{Sleep::kAwake};
  Event wakeup_;
};

// The calling thread's worker, or nullptr. Never inlined, so that no caller keeps a thread-local address over a switch
// that moves it to another thread.
Worker* this_worker();

// Hands a suspended fiber to this worker's queue; it runs here or is stolen.
void make_ready(Fiber* fiber);

// A call of the library by a fiber. No fault suspends the fiber meanwhile: the call holds locks that this worker's
// other fibers may want. False: the caller is no fiber, or a signal handler that interrupted such a call.
class Call {
 public:
  Call() {
    Worker* worker = this_worker();
    Fiber* fiber = worker ? worker->current() : nullptr;
    if (!fiber || fiber->in_call) return;
    fiber->in_call = 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    fiber_ = fiber;
  }
  ~Call() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (fiber_) fiber_->in_call = 0;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  explicit operator bool() const { return fiber_; }
  Fiber* fiber() const { return fiber_; }

 private:
  Fiber* fiber_ = nullptr;
};

// Suspends the calling fiber; `lock` is held, and let go once the fiber may be resumed.
void park(Waiting why, FiberLock* lock);
// The same with an action of the caller's own.
void park(Waiting why, Worker::After after, void* arg);

}  // namespace farside::fibers
