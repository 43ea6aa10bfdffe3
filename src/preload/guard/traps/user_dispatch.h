// Syscall User Dispatch: the kernel sends SIGSYS for system calls of the program (traps.cc). Async-signal-safe.
#pragma once
#include <sys/prctl.h>

// Newer than the headers that may be installed.
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif

namespace farside::preload {

// Switches it on or off for the calling thread, whose selector then decides. 0 or -errno.
int set_dispatch(bool on);

// Arms Syscall User Dispatch for the calling thread and gives it an alternate signal stack. block: system calls are
// trapped from now on. 0 or -errno.
int arm_thread(bool block);

// True if the kernel and the container permit Syscall User Dispatch.
bool can_trap_system_calls();

}  // namespace farside::preload
