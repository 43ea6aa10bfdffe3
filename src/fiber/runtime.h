// One run of fibers: the workers, the fibers, and who sleeps.
//
// No wake-up is lost, because all that follows is sequentially consistent:
//   who makes a fiber ready   adds it to a queue's size, then looks for a sleeper (and for a searching worker)
//   who goes to sleep         announces it (ends its search before), then looks at all queues' sizes
// and likewise for timers and sockets: who adds one looks for a worker that watches them, who stops watching looks
// whether there are any.
#pragma once
#include <pthread.h>
#include <memory>

#include <atomic>
#include <cstdint>

#include "base/near.h"
#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"
#include "fiber/sockets.h"
#include "fiber/timers.h"
#include "fiber/wait.h"
#include "fiber/worker.h"

namespace farside::fibers {

// Who sleeps, and whether that changed meanwhile:
//   bit 63                        16 15           0
//       | times somebody slept or woke | sleeping |
// Only the sleeper itself counts, down as well as up: a waker that did would be late one day, and the sleeper, awake
// and asleep again before, counted twice.
class SleepWord {
 public:
  // The word after the caller's announcement.
  uint64_t add_sleeper() { return word_.fetch_add(kChange + 1) + kChange + 1; }
  void remove_sleeper() { word_.fetch_add(kChange - 1); }
  uint64_t load() const { return word_.load(); }
  static unsigned sleeping(uint64_t word) { return word & (kChange - 1); }

 private:
  static constexpr uint64_t kChange = 1 << 16;
  std::atomic<uint64_t> word_{0};
};

class Runtime : public NearObject {
 public:
  static constexpr unsigned kMaxWorkers = 256;
  static_assert(kMaxWorkers < (1 << 16));  // SleepWord's field

  Runtime(unsigned workers, size_t stack_bytes, const Hooks& hooks);
  ~Runtime();

  // Runs function(arg) as the first fiber and returns when all have ended: 0 or -errno.
  int run(void (*function)(void*), void* arg);

  // A new fiber, not yet ready; nullptr without memory for its stack.
  Fiber* make_fiber(void (*function)(void*), void* arg);
  // After a fiber's end, once nobody can name it any more.
  void recycle(Fiber* fiber);
  void fiber_ended();

  bool done() const { return done_.load(); }
  bool any_ready() const;
  bool work_for_others() const { return any_ready() || (anything_to_watch() && !watched_.load()); }
  unsigned count() const { return count_; }
  Worker& worker(unsigned index) { return *workers_[index]; }
  Timers& timers() { return timers_; }
  Sockets& sockets() { return sockets_; }
  SleepWord& sleep_word() { return sleep_word_; }
  const Hooks& hooks() const { return hooks_; }
  CaughtExceptions* exceptions_of_thread() const { return get_exceptions_ ? get_exceptions_() : nullptr; }

  void wake_one();

  // At most one worker searches for work before it sleeps; while it does, nobody is woken.
  bool begin_search() { return !searching_.exchange(true); }
  void end_search() { searching_.store(false); }

  // At most one worker watches timers and sockets: from begin_watch until end_watch, asleep or not.
  bool begin_watch() { return !watched_.exchange(true); }
  void end_watch();
  void wait_for_events(SocketEvents* events);
  // Makes fibers ready whose time or socket has come.
  void handle_events(const SocketEvents& events);
  // All of it without waiting; nothing if somebody else watches.
  void look_for_events();
  // Sees to it that an idle worker watches what was just added.
  void event_added(bool is_earliest_timer);

  // Ends the process if all workers sleep and nothing can wake a fiber. word: what add_sleeper gave the caller.
  void check_deadlock(uint64_t word);

 private:
  static void* thread_main(void* worker);
  int start_threads();
  void wake_all();
  bool anything_to_watch() const { return timers_.earliest() != Timers::kNever || sockets_.waiters() > 0; }
  [[noreturn]] void report_deadlock();

  unsigned count_;
  size_t stack_bytes_;
  Hooks hooks_;
  CaughtExceptions* (*get_exceptions_)() = nullptr;
  std::unique_ptr<Worker> workers_[kMaxWorkers];
  pthread_t threads_[kMaxWorkers] = {};
  unsigned threads_started_ = 0;

  Timers timers_;
  Sockets sockets_;
  SleepWord sleep_word_;
  std::atomic<bool> searching_{false};
  std::atomic<bool> watched_{false};
  std::atomic<size_t> live_{0};
  std::atomic<bool> done_{false};

  FiberLock fibers_lock_;      // guards the two below
  FiberList free_;             // with their stacks
  Fiber* all_made_ = nullptr;  // through Fiber::next_made
};

}  // namespace farside::fibers
