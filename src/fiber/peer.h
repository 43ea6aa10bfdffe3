// What the workers of a run see of each other: the fibers that are ready to run, and whether the worker sleeps.
// Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/near.h"
#include "base/sync.h"
#include "fiber/fiber.h"
#include "fiber/fiber_lock.h"
#include "fiber/sockets.h"

namespace farside::fibers {

// Ready fibers. Those inside a scope of far objects run first, since the evacuator waits for the end of their scopes
// (AIFM 5.4). The worker pushes and pops; other workers steal.
class RunQueue {
 public:
  void push(Fiber* fiber);
  // in_turn: prefers the oldest fiber that is not in a scope.
  Fiber* pop(bool in_turn = false);
  // Moves the oldest fibers, up to half of them, to `to`; none while another thread holds the lock.
  void give_half(FiberList* to);
  size_t size() const { return size_.load(); }

 private:
  FiberLock lock_;  // size_ is written under it
  FiberList in_scope_ GUARDED_BY(lock_), others_ GUARDED_BY(lock_);
  std::atomic<size_t> size_{0};  // sequentially consistent, so that no wake-up is lost (runtime.h)
};

// A worker that sleeps, and how it is woken.
class Sleeper {
 public:
  // The worker begins to sleep: on the sockets, if it watches them, or on an event.
  void begin(bool on_sockets);
  void wait_for_event() { wakeup_.wait(seen_, kLongWaitNs); }
  void end() { sleep_.store(Sleep::kAwake); }

  bool is_on_event() const { return sleep_.load() == Sleep::kOnEvent; }
  bool is_on_sockets() const { return sleep_.load() == Sleep::kOnSockets; }
  // Wakes the worker if it sleeps. True: it slept, and no other thread had woken it.
  bool wake(Sockets& sockets);

 private:
  static constexpr uint64_t kLongWaitNs = 3600ull * 1000 * 1000 * 1000;
  enum class Sleep : uint32_t { kAwake, kOnEvent, kOnSockets };

  std::atomic<Sleep> sleep_{Sleep::kAwake};
  Event wakeup_;
  uint32_t seen_ = 0;  // of wakeup_, before the sleep was announced
};

struct Peer : NearObject {
  RunQueue ready;
  Sleeper sleeper;
};

}  // namespace farside::fibers
