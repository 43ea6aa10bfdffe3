// What the workers of one run share: the fibers, timers and sockets, and which workers sleep and are woken.
// Thread-safe; called by workers and by fibers inside the library.
//
// No wake-up is lost, because these steps are sequentially consistent:
//   making a fiber ready   adds it to a queue's size, then looks for a sleeper (and for a searching worker)
//   going to sleep         ends the search, announces the sleep, then looks at the sizes of all queues
// In the same way for timers and sockets: adding one looks for a worker that watches them; a worker that stops watching
// looks whether there are any. tests/model/sleep_model checks these steps.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/near.h"
#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"
#include "fiber/hooks.h"
#include "fiber/peer.h"
#include "fiber/sockets.h"
#include "fiber/timers.h"

namespace farside::fibers {

// The number of sleeping workers, and a count of changes of it:
//   bit 63                 16 15           0
//       | changes so far     | sleeping    |
// Only the sleeping worker itself changes the word, down as well as up. If the waker counted it down, it could be late:
// the worker would be awake, asleep again, and counted twice.
class SleepWord {
 public:
  // Returns the word with the caller counted.
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

  // Functions of the workers' loop (worker.h).
  struct Loop {
    void (*fiber_main)();        // the first function on a fiber's stack
    void (*make_ready)(Fiber*);  // puts a fiber into the calling worker's queue
  };

  Runtime(unsigned workers, size_t stack_bytes, const Hooks& hooks, const Loop& loop);
  ~Runtime();

  // Before the first fiber. 0 or -errno.
  int open() { return sockets_.open(); }
  // The workers end, whatever there is left to run.
  void end();

  // A new fiber, which is not in any list; nullptr: no memory for its stack.
  Fiber* make_fiber(void (*function)(void*), void* arg);
  // Makes an ended fiber available for reuse. No reference to it is left.
  void recycle(Fiber* fiber);
  void fiber_ended();

  bool done() const { return done_.load(); }
  bool any_ready() const;
  bool work_for_others() const { return any_ready() || (anything_to_watch() && !watched_.load()); }
  unsigned count() const { return count_; }
  Peer& peer(unsigned index) { return *peers_[index]; }
  Timers& timers() { return timers_; }
  Sockets& sockets() { return sockets_; }
  SleepWord& sleep_word() { return sleep_word_; }
  const Hooks& hooks() const { return hooks_; }
  CaughtExceptions* exceptions_of_thread() const { return get_exceptions_ ? get_exceptions_() : nullptr; }

  void wake_one();

  // At most one worker searches for work before it sleeps; while one does, none is woken.
  bool begin_search() { return !searching_.exchange(true); }
  void end_search() { searching_.store(false); }

  // At most one worker watches timers and sockets: from begin_watch until end_watch, asleep or not.
  bool begin_watch() { return !watched_.exchange(true); }
  void end_watch();
  void wait_for_events(SocketEvents* events);
  // Makes the fibers ready whose timer has expired or whose descriptor is ready.
  void handle_events(const SocketEvents& events);
  // Watches without waiting, and handles the events. Does nothing while another worker watches.
  void look_for_events();
  // Ensures that an idle worker watches the timer or socket that was just added.
  void event_added(bool is_earliest_timer);

  // Ends the process if all workers sleep and nothing can wake a fiber. word: the result of the caller's add_sleeper.
  void check_deadlock(uint64_t word);

 private:
  bool anything_to_watch() const { return timers_.earliest() != Timers::kNever || sockets_.waiters() > 0; }
  [[noreturn]] void report_deadlock();

  unsigned count_;
  size_t stack_bytes_;
  Hooks hooks_;
  CaughtExceptions* (*get_exceptions_)() = nullptr;
  Loop loop_;
  std::unique_ptr<Peer> peers_[kMaxWorkers];

  Timers timers_;
  Sockets sockets_;
  SleepWord sleep_word_;
  std::atomic<bool> searching_{false};
  std::atomic<bool> watched_{false};
  std::atomic<size_t> live_{0};
  std::atomic<bool> done_{false};

  FiberLock fibers_lock_;
  FiberList free_ GUARDED_BY(fibers_lock_);             // ended fibers, with their stacks
  Fiber* all_made_ GUARDED_BY(fibers_lock_) = nullptr;  // through Fiber::next_made
};

}  // namespace farside::fibers
