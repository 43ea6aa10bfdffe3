// Signals of the program that arrive while Farside's handler of SIGBUS or SIGSYS runs. The program's handlers never run
// then: they could access a page that the fault path owns, and they would run on Farside's alternate stack, where a
// garbage collector would take the wrong stack pointer. Such a signal is returned to the kernel's queue with its data,
// and all signals are blocked in the interrupted handler. When that has returned, the kernel delivers the signal where
// it would have natively: on the program's stack, with the registers and the mask of the program.
//
//   where the signal arrives                      what follows
//   ----------------------------------------      ------------------------------------------------------------
//   program, or wrapper of a libc function        delivered at once
//   handler of SIGBUS                             delivered when the access is repeated
//   handler of SIGSYS, before the system call     the call is not issued; after the signal the program repeats it
//   handler of SIGSYS, in the system call         EINTR, or the program repeats the call: as the kernel decides
//   handler of SIGSYS, after the system call      delivered after the call
//
// Async-signal-safe; the state belongs to the calling thread. docs/decisions/0008, 0023.
#pragma once
#include <signal.h>
#include <ucontext.h>

#include "preload/guard/thread/guard_thread.h"

namespace farside::preload {

// The result of a system call that was not issued, because a signal arrived. The program never sees it.
inline constexpr long kNotIssued = -513;

// The handlers of SIGBUS and SIGSYS that the kernel calls. They note in t_guard.handlers that they run, and call
// farside_on_sigbus and farside_on_sigsys. For other signals: signal_frames.h.
extern "C" void farside_enter_sigbus(int signal, siginfo_t* info, void* context);
extern "C" void farside_enter_sigsys(int signal, siginfo_t* info, void* context);

// Issues a system call of the program. kNotIssued if a signal has arrived since the SIGSYS handler was entered.
extern "C" long farside_interruptible_call(long number, const long* arguments);

// The return address of signal handlers: rt_sigreturn from the address range that is not trapped.
extern "C" void farside_restorer();
// Leaves the SIGSYS handler: returns from the signal frame at this stack pointer.
extern "C" [[noreturn]] void farside_sigreturn_at(uint64_t stack_pointer);

// True if the signal interrupted one of the two handlers. It is in the kernel's queue again then, and the caller only
// has to return. False: the program's handler is to be called; *info is what it is to see.
bool deferred(int signal, siginfo_t* info, ucontext_t* interrupted);

// A system call that waits with a signal mask of its own, t_guard.wait_mask, was interrupted: signals are delivered
// that the program's mask blocks, and their handlers run with the mask of the wait. The first function is called at the
// end of the SIGSYS handler; the second restores the program's mask, in the context that the program's handler sees.
void end_wait(ucontext_t* interrupted);
void restore_mask_after_wait(ucontext_t* interrupted);

}  // namespace farside::preload
