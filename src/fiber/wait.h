// The seam between fibers and what they wait for outside of the library: a page on its way. Everything here but
// set_hooks is async-signal-safe, since the pager calls it inside its SIGBUS handler, on the fiber's own stack.
//
//   if (!fibers::in_fiber(interrupted_mask)) return wait_by_thread();
//   start_fetch(page);
//   fibers::wait_until(has_arrived, &page);   // other fibers run; hooks.poll completes the fetch
//
// A thread that must wait while in_fiber() is false may still be a worker whose other fibers wait in wait_until. It has
// to complete their fetches itself while it waits: they may own what it waits for.
#pragma once
#include "base/os.h"

struct farside_scopes;

namespace farside::fibers {

// The caller runs on the stack of a fiber and may be suspended. False inside the library's own critical sections,
// between farside_fiber_hold and _release, in the scheduler, and on an alternate signal stack.
bool in_fiber();
// The same for a fault handler, which tells the mask of the code that faulted: false if that is not the worker's, for
// then it is most likely a signal handler of the program. That may have interrupted code which holds a lock of this
// thread's, malloc's say, and the worker's next fiber would wait for it for ever.
bool in_fiber(os::SignalSet interrupted_mask);

// Suspends the calling fiber until ready(arg) is true. ready is called by this worker's loop, between other fibers,
// with signals blocked; it must not wait, allocate or fault. The fiber goes on on the same worker, with its errno and
// its signal mask as they were, and stays there until it blocks or yields by a call of its own. Only where in_fiber().
void wait_until(bool (*ready)(void*), void* arg);

// True while the calling fiber's worker gets to its poll hook within some microseconds, going by how long its fibers
// ran lately: then a fetch may wait for others to go out with. Only where in_fiber().
bool polls_soon();

// What the pager wants to do in every worker thread. Any may be null.
struct Hooks {
  void (*worker_starts)() = nullptr;  // in the thread, before its first fiber
  void (*worker_ends)() = nullptr;    // in the thread, after its last
  // Completes what the worker's fibers wait for. Called between fibers while at least one of them is in wait_until;
  // signals are blocked (SignalsBlocked::kAllButFaults at least). Must not wait or call this library.
  void (*poll)() = nullptr;
  // A fiber that had scopes of far objects is gone for good.
  void (*drop_scopes)(farside_scopes*) = nullptr;
};

// Before farside_fiber_run; a run keeps the hooks it began with.
void set_hooks(const Hooks& hooks);

}  // namespace farside::fibers
