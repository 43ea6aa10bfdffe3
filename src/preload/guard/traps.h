// The SIGSYS handler, for system calls that Syscall User Dispatch traps. Most are passed to guarded_call(). Those that
// need the interrupted context are executed here: signal masks (the kernel restores them from the signal frame),
// rt_sigreturn, and the clone family, whose children start in the program's context. Async-signal-safe.
#pragma once
#include <signal.h>

#include "preload/guard/guard_thread.h"

namespace farside::preload {

// Arms Syscall User Dispatch for the calling thread and gives it an alternate signal stack. block: system calls are
// trapped from now on. 0 or -errno.
int arm_thread(bool block);
// In handler mode, after a fork: gives the thread's alternate stack back to the program.
void leave_alternate_stack();

// Enables or disables the calling thread's alternate signal stack. Workers of fibers disable it: a fiber that faults is
// suspended inside the handler, so the signal frame must be on the fiber's stack.
void use_alternate_stack(bool use);

// True if the kernel and the container permit Syscall User Dispatch.
bool can_trap_system_calls();

}  // namespace farside::preload
