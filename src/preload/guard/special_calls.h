// System calls that change the address space, descriptors or processes, and so concern Farside itself; also
// calls that are refused. Separate from syscall_table.h, because each has its own code.
// Async-signal-safe.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise. Calls that need the
// interrupted context (signal masks, clone, sigreturn) are handled before, in traps.cc.
bool special_call(const Call& call, long* result);

// close, close_range, dup2 and dup3 of the program, which must not affect Farside's descriptors.
long guarded_close(int fd);
long guarded_close_range(unsigned first, unsigned last, unsigned flags);
long guarded_dup(long number, int from, int to, int flags);

}  // namespace farside::preload
