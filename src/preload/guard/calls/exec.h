// execve and execveat: this process becomes another program. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Notes that for the report of the run.
long guarded_exec(const Call& call);

}  // namespace farside::preload
