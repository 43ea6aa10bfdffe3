#include "fiber/worker.h"

#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_storage.h"
#include "farside/scope_state.h"

// The scopes of the running thread of control: the thread's, or those of the fiber that it runs.
extern "C" {
__attribute__((visibility("default"))) __thread struct farside_scopes* farside_scopes_here = nullptr;
}

namespace farside::fibers {
namespace {

constexpr unsigned kEventRounds = 32;  // a busy worker looks for events after this many fibers
constexpr unsigned kFairRounds = 61;   // and prefers its queue to fibers back from wait_until once in this many
constexpr double kPollUs = 20;         // between two polls while fibers run; a turn that takes longer is a long one
constexpr unsigned kSpins = 400;       // about 10 us
constexpr unsigned kSpinsBeforeYield = 1000;

__attribute__((tls_model("initial-exec"))) thread_local Worker* t_worker = nullptr;

}  // namespace

__attribute__((noinline)) Worker* this_worker() {
  asm volatile("" ::: "memory");
  return of_this_thread(t_worker);
}

void FiberLock::lock_contended() {
  for (unsigned spins = 0; !lock_.try_lock(); spins++) {
    if (spins < 100) {
      cpu_relax();
      continue;
    }
    if (Worker* worker = this_worker()) worker->keep_fetching();
    os::sched_yield();
  }
}

void make_ready(Fiber* fiber) {
  Worker* worker = this_worker();
  fiber->waiting = Waiting::kNothing;
  worker->ready().push(fiber);
  worker->runtime().wake_one();
}

// If the fiber that yields is the only one, it continues at once, and no other worker is woken.
void Worker::requeue(Fiber* fiber) {
  ready().push(fiber);
  if (ready().size() > 1 || !returned_.empty() || !waiting_.empty()) runtime_.wake_one();
}

// ---- called by the running fiber ----

namespace {

// Runs in the loop, off the fiber's stack: recycles the fiber, or leaves it to its joiner.
void after_end(Fiber* fiber, void*) {
  Runtime& runtime = this_worker()->runtime();
  finished(&fiber->context);
  uintptr_t join_state = fiber->join_state.exchange(Fiber::kEnded);
  if (join_state == Fiber::kDetached) runtime.recycle(fiber);
  else if (join_state != 0) make_ready(reinterpret_cast<Fiber*>(join_state));
  runtime.fiber_ended();
}

}  // namespace

// noexcept: an exception that leaves the function ends the process with the usual message. A fiber begins and ends with
// in_call set: until it has arrived on its stack, a fault in a signal handler must not switch away from it.
void fiber_main() noexcept {
  Fiber* self = this_worker()->current();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  self->in_call = 0;
  self->function(self->argument);
  self->in_call = 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  this_worker()->end_fiber(after_end);
}

void Worker::suspend(After after, void* arg) {
  after_ = after;
  after_argument_ = arg;
  switch_context(&current_->context, &context_);
}

void Worker::end_fiber(After after) {
  after_ = after;
  after_argument_ = nullptr;
  leave_context(&current_->context, &context_);
}

// Called under a fault: takes no locks, allocates nothing, and leaves the signal mask unchanged until the loop runs on
// its own stack.
void Worker::wait_until(bool (*is_ready)(void*), void* arg) {
  if (is_ready(arg)) return;
  int saved_errno = errno;
  Fiber* fiber = current_;
  fiber->in_call = 1;  // at a hint signals are not blocked: a handler that faults must not enter here again
  os::sigprocmask(SIG_BLOCK, nullptr, &fiber->mask);
  fiber->has_mask = true;
  fiber->ready = is_ready;
  fiber->ready_argument = arg;
  fiber->waiting = Waiting::kMemory;
  suspend([](Fiber* f, void* self) { static_cast<Worker*>(self)->waiting_.push(f); }, this);
  fiber->has_mask = false;
  fiber->waiting = Waiting::kNothing;
  fiber->in_call = 0;
  errno = saved_errno;
}

// Not analyzed, here and below: the loop releases what the fiber took.
static void release(Fiber*, void* lock) NO_THREAD_SAFETY_ANALYSIS { static_cast<FiberLock*>(lock)->unlock(); }

void park(Waiting why, FiberLock* lock) NO_THREAD_SAFETY_ANALYSIS { park(why, release, lock); }

void park(Waiting why, Worker::After after, void* arg) {
  Worker* worker = this_worker();
  worker->current()->waiting = why;
  worker->suspend(after, arg);
}

// ---- the loop ----

void Worker::work() {
  adopt_thread(&context_);
  os::sigprocmask(SIG_BLOCK, nullptr, &normal_mask_);
  mask_ = normal_mask_;
  exceptions_ = runtime_.exceptions_of_thread();
  poll_interval_ = static_cast<uint64_t>(kPollUs * ticks_per_us());
  if (runtime_.hooks().worker_starts) runtime_.hooks().worker_starts();
  t_worker = this;
  unsigned idle_rounds = 0;
  while (!runtime_.done()) {
    if (++round_ % kEventRounds == 0) runtime_.look_for_events();
    if (time_to_poll()) poll_waiting();
    if (Fiber* fiber = next()) {
      idle_rounds = 0;
      run(fiber);
    } else {
      idle(idle_rounds++);
    }
  }
  t_worker = nullptr;
  if (runtime_.hooks().worker_ends) runtime_.hooks().worker_ends();
}

// Each poll is a system call, so it is rare while there are fibers to run.
bool Worker::time_to_poll() {
  if (waiting_.empty()) return false;
  return (returned_.empty() && ready().size() == 0) || ticks() - polled_ > poll_interval_;
}

void Worker::poll_waiting() {
  polled_ = ticks();
  block_signals();
  if (runtime_.hooks().poll) runtime_.hooks().poll();
  if (!returned_.empty()) return;
  waiting_.take_if([](Fiber* f) { return f->ready(f->ready_argument); }, [this](Fiber* f) { returned_.push(f); });
}

Fiber* Worker::next() {
  Fiber* fiber = nullptr;
  bool in_turn = round_ % kFairRounds == 0;
  if (!in_turn) fiber = returned_.pop();
  if (!fiber) fiber = ready().pop(in_turn);
  if (!fiber) fiber = returned_.pop();
  if (!fiber) fiber = steal();
  if (fiber && searched_) {
    searched_ = false;
    if (runtime_.work_for_others()) runtime_.wake_one();
  }
  return fiber;
}

Fiber* Worker::steal() {
  FiberList stolen;
  for (unsigned i = 1; i < runtime_.count() && stolen.empty(); i++) {
    runtime_.peer((index_ + i) % runtime_.count()).ready.give_half(&stolen);
  }
  Fiber* first = stolen.pop();
  if (stolen.empty()) return first;
  while (Fiber* fiber = stolen.pop()) ready().push(fiber);
  runtime_.wake_one();  // a worker that looked while they were in no queue may have gone to sleep
  return first;
}

void Worker::run(Fiber* fiber) {
  set_mask(fiber->has_mask ? fiber->mask : normal_mask_);
  CaughtExceptions own = {};
  if (exceptions_) {
    own = *exceptions_;
    *exceptions_ = fiber->exceptions;
  }
  current_ = fiber;
  farside_scopes* own_scopes = std::exchange(farside_scopes_here, fiber->scopes);
  uint64_t start = ticks();
  turns_++;
  switch_context(&context_, &fiber->context);
  if (ticks() - start > poll_interval_) last_long_turn_ = turns_;
  current_ = nullptr;
  fiber->scopes = std::exchange(farside_scopes_here, own_scopes);
  if (exceptions_) {
    fiber->exceptions = *exceptions_;
    *exceptions_ = own;
  }
  mask_ = fiber->has_mask ? fiber->mask : normal_mask_;
  after_(fiber, after_argument_);
}

void Worker::set_mask(os::SignalSet mask) {
  if (mask == mask_) return;
  os::sigprocmask(SIG_SETMASK, &mask, nullptr);
  mask_ = mask;
}

// For polling, which owns pages: a signal handler that interrupted it and touched one would wait for its own thread.
// The mask of a fiber that faulted already blocks these signals, so switching between faulting fibers makes no system
// call.
void Worker::block_signals() {
  os::SignalSet wanted = normal_mask_ | SignalsBlocked::kAllButFaults;
  if ((mask_ & wanted) != wanted) set_mask(wanted);
}

void Worker::keep_fetching() {
  if (waiting_.empty() || !runtime_.hooks().poll) return;
  SignalsBlocked blocked;
  runtime_.hooks().poll();
}

// ---- idle ----

void Worker::idle(unsigned idle_rounds) {
  if (!waiting_.empty()) {
    if (idle_rounds < kSpinsBeforeYield) cpu_relax();
    else os::sched_yield();  // the server may need this processor
    return;
  }
  set_mask(normal_mask_);
  if (!spin()) sleep();
}

// Searches for work for about 10 us. True: there is some, or the run is over.
bool Worker::spin() {
  if (!runtime_.begin_search()) return false;
  bool found = false;
  for (unsigned i = 0; i < kSpins && !found; i++) {
    cpu_relax();
    found = runtime_.any_ready() || runtime_.done();
  }
  searched_ = true;
  runtime_.end_search();
  return found;
}

void Worker::sleep() {
  bool watches = runtime_.begin_watch();
  SocketEvents events;
  peer_.sleeper.begin(watches);
  uint64_t word = runtime_.sleep_word().add_sleeper();
  if (!runtime_.any_ready() && !runtime_.done()) {
    runtime_.check_deadlock(word);
    if (watches) runtime_.wait_for_events(&events);
    else peer_.sleeper.wait_for_event();
  }
  // Counted as awake before it makes anything ready: check_deadlock relies on sleepers doing nothing.
  peer_.sleeper.end();
  runtime_.sleep_word().remove_sleeper();
  if (!watches) return;
  runtime_.handle_events(events);
  runtime_.end_watch();
}

}  // namespace farside::fibers
