// A fiber, and lists of fibers. Fibers are near memory, because the worker's loop reads them while a fault waits.
// A fiber is owned by its Runtime. At any moment one thread or one lock's holder may access it: the worker that runs
// it, or the owner of the one list that it is in.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/near.h"
#include "base/os.h"
#include "fiber/stack_context.h"

struct farside_scopes;

namespace farside::fibers {

// What a fiber waits for, for the report of a deadlock.
enum class Waiting : uint8_t { kNothing, kJoin, kMutex, kCondition, kGroup, kChannel, kTimer, kSocket, kMemory };
inline constexpr int kWaitingKinds = 9;

// The structure behind __cxa_get_globals() (Itanium C++ ABI 2.2.2): a thread's caught exceptions. Each fiber has one;
// the worker exchanges them at every switch.
struct CaughtExceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

}  // namespace farside::fibers

// The C interface's opaque type.
struct farside_fiber : farside::NearObject {
  farside::fibers::StackContext context;
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  farside::fibers::CaughtExceptions exceptions;
  farside_scopes* scopes = nullptr;  // of far objects; kept when the fiber is reused

  // 1: the fiber is inside the library, and a fault must not suspend it. Written by the thread that runs the fiber,
  // read by signal handlers of that thread: volatile.
  volatile int in_call = 0;
  volatile int holds = 0;  // > 0: farside_fiber_hold, with the same effect
  farside::fibers::Waiting waiting = farside::fibers::Waiting::kNothing;
  farside_fiber* next = nullptr;       // in the one list that the fiber is in
  farside_fiber* next_made = nullptr;  // in the list of all fibers

  // Where the end of the fiber, its joiner and a detach meet. 0: the fiber runs and is neither joined nor detached;
  // kEnded; kDetached; otherwise the address of the fiber that waits in join.
  std::atomic<uintptr_t> join_state{0};
  static constexpr uintptr_t kEnded = 1, kDetached = 2;

  // In wait_until.
  bool (*ready)(void*) = nullptr;
  void* ready_argument = nullptr;
  farside::os::SignalSet mask = 0;
  bool has_mask = false;  // it is resumed with `mask` instead of the worker's mask

  // Set by the fiber or worker that makes it ready.
  int result = 0;
  void* item = nullptr;  // of a channel

  // In Timers: a node of a pairing heap.
  uint64_t deadline = 0, turn = 0;
  farside_fiber* child = nullptr;
  farside_fiber* sibling = nullptr;

  // In Sockets.
  int fd = -1;
  uint32_t events = 0;
};

namespace farside::fibers {

using Fiber = farside_fiber;

// A first-in-first-out list, linked through Fiber::next. Not thread-safe: the owner's lock guards it.
class FiberList {
 public:
  bool empty() const { return !first_; }
  void push(Fiber* fiber) {
    fiber->next = nullptr;
    if (first_) last_->next = fiber;
    else first_ = fiber;
    last_ = fiber;
  }
  Fiber* pop() {
    Fiber* fiber = first_;
    if (fiber) first_ = fiber->next;
    return fiber;
  }
  // Removes all fibers for which test is true, in order, and calls taken for each.
  template <typename Test, typename Taken>
  void take_if(Test test, Taken taken) {
    FiberList rest;
    while (Fiber* fiber = pop()) {
      if (test(fiber)) taken(fiber);
      else rest.push(fiber);
    }
    *this = rest;
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (Fiber* fiber = first_; fiber; fiber = fiber->next) visit(fiber);
  }

 private:
  Fiber* first_ = nullptr;
  Fiber* last_ = nullptr;
};

}  // namespace farside::fibers
