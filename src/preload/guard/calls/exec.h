// execve and execveat: this process becomes another program. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Whether the kernel can read what a program is to be started with; else it refuses the call. nullptr is no error here.
bool are_readable(const char* path, const char* const* arguments, const char* const* environment);

// Notes that for the report of the run.
long guarded_exec(const Call& call);

}  // namespace farside::preload
