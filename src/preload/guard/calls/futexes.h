// futex and its newer forms. A word must be present when the kernel reads it, but is not pinned while the thread
// sleeps: a call that meets an absent word is repeated. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool futex_call(const Call& call, long* result);

}  // namespace farside::preload
