// Calls that the kernel permits only to a process of one thread (user namespaces), or that change what the calling
// thread may do: Farside's threads end before, and new ones inherit the result. Before a call that takes rights away, a
// process that has not needed threads yet starts them and connects. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool identity_call(const Call& call, long* result);

}  // namespace farside::preload
