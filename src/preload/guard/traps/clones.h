// The clone family: fork, vfork, clone and clone3 of the program. Children start in the program's context, which is the
// interrupted one, with the guard armed. Async-signal-safe.
#pragma once
#include <ucontext.h>

#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes a call of the family. Returns the kernel's result, in a child of a fork 0; threads do not return here.
long clone_in(ucontext_t* context, Call call);

}  // namespace farside::preload
