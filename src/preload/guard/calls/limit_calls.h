// getrlimit, setrlimit and prlimit of the limits that are the program's (heap/limits.h). Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// False: another call, another limit, or another process.
bool limit_call(const Call& call, long* result);

}  // namespace farside::preload
