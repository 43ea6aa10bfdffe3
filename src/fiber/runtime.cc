#include "fiber/runtime.h"

#include <dlfcn.h>

#include "base/log.h"

namespace farside::fibers {

// The program's exceptions are in the C++ library that the program uses, not in the one that is linked into Farside.
Runtime::Runtime(unsigned workers, size_t stack_bytes, const Hooks& hooks, const Loop& loop)
    : count_(workers), stack_bytes_(stack_bytes), hooks_(hooks), loop_(loop), sockets_(loop.make_ready) {
  get_exceptions_ = reinterpret_cast<CaughtExceptions* (*)()>(dlsym(RTLD_DEFAULT, "__cxa_get_globals"));
  for (unsigned i = 0; i < count_; i++) peers_[i] = std::make_unique<Peer>();
}

Runtime::~Runtime() {
  while (Fiber* fiber = all_made_) {
    all_made_ = fiber->next_made;
    if (fiber->scopes && hooks_.drop_scopes) hooks_.drop_scopes(fiber->scopes);
    drop_stack(&fiber->context);
    delete fiber;
  }
  sockets_.close();
}

// ---- fibers ----

Fiber* Runtime::make_fiber(void (*function)(void*), void* arg) {
  fibers_lock_.lock();
  Fiber* fiber = free_.pop();
  fibers_lock_.unlock();
  if (!fiber) {
    SignalsBlocked blocked;  // as the near allocator requires
    fiber = new Fiber;
    if (!make_stack(&fiber->context, stack_bytes_)) {
      delete fiber;
      return nullptr;
    }
    LockGuard guard(fibers_lock_);
    fiber->next_made = all_made_;
    all_made_ = fiber;
  }
  fiber->function = function;
  fiber->argument = arg;
  fiber->exceptions = {};
  fiber->in_call = 1;
  fiber->holds = 0;
  fiber->join_state = 0;
  prepare(&fiber->context, loop_.fiber_main);
  live_.fetch_add(1);
  return fiber;
}

void Runtime::recycle(Fiber* fiber) {
  LockGuard guard(fibers_lock_);
  free_.push(fiber);
}

void Runtime::fiber_ended() {
  if (live_.fetch_sub(1) == 1) end();
}

void Runtime::end() {
  done_ = true;
  for (unsigned i = 0; i < count_; i++) peers_[i]->sleeper.wake(sockets_);
}

// ---- sleeping and waking ----

bool Runtime::any_ready() const {
  for (unsigned i = 0; i < count_; i++) {
    if (peers_[i]->ready.size() > 0) return true;
  }
  return false;
}

void Runtime::wake_one() {
  if (SleepWord::sleeping(sleep_word_.load()) == 0 || searching_.load()) return;
  for (unsigned i = 0; i < count_; i++) {
    if (peers_[i]->sleeper.is_on_event() && peers_[i]->sleeper.wake(sockets_)) return;
  }
  for (unsigned i = 0; i < count_; i++) {
    if (peers_[i]->sleeper.wake(sockets_)) return;
  }
}

void Runtime::end_watch() {
  watched_.store(false);
  if (anything_to_watch()) wake_one();
}

void Runtime::wait_for_events(SocketEvents* events) {
  uint64_t earliest = timers_.earliest();
  uint64_t now = earliest == Timers::kNever ? 0 : now_ns();
  sockets_.wait(events, earliest == Timers::kNever ? Timers::kNever : earliest > now ? earliest - now : 0);
}

void Runtime::handle_events(const SocketEvents& events) {
  sockets_.handle(events);
  if (timers_.earliest() == Timers::kNever) return;
  uint64_t now = now_ns();
  while (Fiber* fiber = timers_.take_due(now)) loop_.make_ready(fiber);
}

void Runtime::look_for_events() {
  if (!anything_to_watch() || !begin_watch()) return;
  SocketEvents events;
  if (sockets_.waiters() > 0) sockets_.wait(&events, 0);
  handle_events(events);
  end_watch();
}

void Runtime::event_added(bool is_earliest_timer) {
  if (SleepWord::sleeping(sleep_word_.load()) == 0) return;
  if (!watched_.load()) return wake_one();
  if (!is_earliest_timer) return;
  for (unsigned i = 0; i < count_; i++) {
    if (peers_[i]->sleeper.is_on_sockets()) peers_[i]->sleeper.wake(sockets_);
  }
}

// ---- deadlock ----

// All workers sleep, and sleepers change nothing. The word is unchanged after the checks, so no worker woke during
// them, and the checks saw a consistent state.
void Runtime::check_deadlock(uint64_t word) {
  if (SleepWord::sleeping(word) != count_) return;
  if (any_ready() || anything_to_watch() || done() || sleep_word_.load() != word) return;
  report_deadlock();
}

void Runtime::report_deadlock() {
  static constexpr const char* kNames[kWaitingKinds] = {"",         "join",   "mutexes", "conditions", "wait groups",
                                                        "channels", "timers", "sockets", "memory"};
  size_t counts[kWaitingKinds] = {};
  LockGuard guard(fibers_lock_);
  for (Fiber* fiber = all_made_; fiber; fiber = fiber->next_made) counts[static_cast<int>(fiber->waiting)]++;
  char text[200];
  size_t used = 0;
  for (int kind = 1; kind < kWaitingKinds; kind++) {
    if (counts[kind] == 0) continue;
    auto end =
        fmt::format_to_n(text + used, sizeof text - used, "{}{} {}", used ? ", " : "", kNames[kind], counts[kind]);
    used = static_cast<size_t>(end.out - text);
  }
  die("deadlock: all {} fibers wait for each other, and nothing can wake them (waiting for {}); look for a missing "
      "unlock, signal, done or send",
      live_.load(), fmt::string_view(text, used));
}

}  // namespace farside::fibers
