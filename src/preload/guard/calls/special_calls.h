// System calls that change the address space, descriptors or processes, and so concern Farside itself; also
// calls that are refused. Separate from syscall_table.h, because each has its own code.
// Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise. Calls that need the
// interrupted context (signal masks, clone, sigreturn) are handled before, in traps.cc.
bool special_call(const Call& call, long* result);

}  // namespace farside::preload
