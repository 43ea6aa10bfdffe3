// The syscall guard. In signal mode a system call that accesses an absent page fails with EFAULT, so none may meet one.
// Every system call of the program passes through guarded_call(), either from a wrapper of a frequent libc function
// (libc/) or from the SIGSYS handler of Syscall User Dispatch (traps/). Far memory that its arguments refer to is
// pinned during the call.
//
// Async-signal-safe: all of it may run inside the SIGSYS handler, on the alternate stack. It may be interrupted by the
// program's signal handlers, which may enter it again or leave it by longjmp. Therefore it holds no lock across a
// system call and uses no heap.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Issues the call with the far memory of its arguments pinned. Returns the kernel's result (-errno on failure).
long guarded_call(const Call& call);

}  // namespace farside::preload
