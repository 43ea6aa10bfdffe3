// The interface between fibers and the pager: a fiber waits for a page that is being fetched. The pager calls it inside
// its SIGBUS handler, on the fiber's stack, so everything here except set_hooks is async-signal-safe. It is separate so
// that this folder does not depend on the pager.
//
//   if (!fibers::in_fiber(interrupted_mask)) return wait_by_thread();
//   start_fetch(page);
//   fibers::wait_until(has_arrived, &page);   // other fibers run; hooks.poll completes the fetch
//
// A thread that has to wait while in_fiber() is false may be a worker whose other fibers wait in wait_until. It has to
// complete their fetches while it waits, because one of those fibers may own the page that it waits for.
#pragma once
#include "base/os.h"
#include "fiber/hooks.h"

namespace farside::fibers {

// True if the caller runs on the stack of a fiber and may be suspended. False inside calls of this library, between
// farside_fiber_hold and _release, in the worker's loop, and on an alternate signal stack.
bool in_fiber();
// The same for a fault handler, which passes the signal mask of the code that faulted. False if it differs from the
// worker's mask: then that code is most likely a signal handler of the program. It may have interrupted code that holds
// a lock, such as malloc's, and the next fiber of the worker would wait for the lock forever.
bool in_fiber(os::SignalSet interrupted_mask);

// Suspends the calling fiber until ready(arg) is true. ready is called by this worker's loop, between other fibers,
// with signals blocked; it must not wait, allocate or fault. The fiber continues on the same worker with the same errno
// and signal mask, and stays there until it calls a function that may block. Requires in_fiber().
void wait_until(bool (*ready)(void*), void* arg);

// True if the calling fiber's worker will probably call its poll hook within some microseconds, judged by how long its
// fibers ran recently. A fetch may then wait to be sent together with others. Requires in_fiber().
bool polls_soon();

// To be called before farside_fiber_run; a run keeps the hooks that were set when it began.
void set_hooks(const Hooks& hooks);

}  // namespace farside::fibers
