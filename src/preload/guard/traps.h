// The SIGSYS handler: system calls that Syscall User Dispatch trapped. Most go to guarded_call(); those that need the
// interrupted context are handled here: signal masks (the kernel restores them from the frame), rt_sigreturn, and the
// clone family, whose children start in the program's context.
#pragma once
#include <signal.h>

#include "preload/guard/guard_thread.h"

namespace farside::preload {

void on_sigsys(int signal, siginfo_t* info, void* context);

// Arms Syscall User Dispatch for the calling thread and gives it an alternate signal stack. 0 or -errno.
int arm_thread(bool block);
// Gives the calling thread an alternate signal stack only.
void prepare_thread();

// The calling thread's handlers run on the stack that is in use, from now on or no more: fibers that fault are
// suspended inside the handler, so its frame must lie on their own stack.
void use_alternate_stack(bool use);

// True if the kernel has Syscall User Dispatch.
bool can_trap_system_calls();

}  // namespace farside::preload
