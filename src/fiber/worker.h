// One thread that runs fibers: its queues and its loop. The loop runs on the thread's own stack. A fiber that blocks
// switches to the loop; only there, off the fiber's stack, is the fiber put into a list from which another thread may
// resume it. So no fiber is resumed while its stack is still in use.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/near.h"
#include "base/os.h"
#include "base/sync.h"
#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"
#include "fiber/runtime.h"

namespace farside::fibers {

class Worker : public NearObject {
 public:
  Worker(Runtime& runtime, unsigned index) : runtime_(runtime), peer_(runtime.peer(index)), index_(index) {}

  // Runs fibers in the calling thread until the runtime is done.
  void work();

  Runtime& runtime() { return runtime_; }
  Fiber* current() const { return current_; }
  RunQueue& ready() { return peer_.ready; }
  os::SignalSet normal_mask() const { return normal_mask_; }

  // For the running fiber, called on its stack. suspend() switches to the loop, which calls after(fiber, arg): from
  // then on another thread may resume the fiber. When suspend() returns, the fiber may be on another worker.
  using After = void (*)(Fiber*, void*);
  void suspend(After after, void* arg);
  [[noreturn]] void end_fiber(After after);
  void wait_until(bool (*is_ready)(void*), void* arg);
  bool polls_soon() const { return turns_ - last_long_turn_ > kShortTurns; }

  // Puts a fiber that yielded back into the queue.
  void requeue(Fiber* fiber);

  // Completes the fetches of the worker's fibers. For a worker that waits for a FiberLock.
  void keep_fetching();

 private:
  // After this many short turns, the next one is expected to be short.
  static constexpr uint64_t kShortTurns = 4;

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

  Runtime& runtime_;
  Peer& peer_;
  unsigned index_;
  Fiber* volatile current_ = nullptr;
  StackContext context_;
  After after_ = nullptr;
  void* after_argument_ = nullptr;

  FiberList waiting_;   // in wait_until; accessed by this thread only
  FiberList returned_;  // back from wait_until; run before those in ready()
  unsigned round_ = 0;
  uint64_t turns_ = 0, last_long_turn_ = 0;  // a turn: one fiber ran once
  uint64_t polled_ = 0, poll_interval_ = 0;  // in ticks
  bool searched_ = false;                    // it searched, and wake_one() may have relied on it to find a fiber

  os::SignalSet normal_mask_ = 0;           // of the thread when the loop began
  os::SignalSet mask_ = 0;                  // of the thread now, while the loop runs
  CaughtExceptions* exceptions_ = nullptr;  // of the thread; null: the program has no C++ library
};

// The calling thread's worker, or nullptr. Not inlined, so that no caller keeps the address of a thread-local over a
// switch to another thread.
Worker* this_worker();

// The first function on a fiber's stack.
void fiber_main() noexcept;

// Puts a suspended fiber into the queue of the calling worker. It runs there or is stolen.
void make_ready(Fiber* fiber);

// Marks a call of the library by a fiber. While one exists, no fault suspends the fiber, because the call may hold
// locks that other fibers of the worker need. False: the caller is not a fiber, or a signal handler that interrupted
// such a call.
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

// Suspends the calling fiber. The caller holds `lock`; the loop releases it when the fiber may be resumed.
void park(Waiting why, FiberLock* lock) RELEASE(lock);
// The same, with an action that the loop runs in place of the release.
void park(Waiting why, Worker::After after, void* arg);

}  // namespace farside::fibers
