// What a program sees of itself in /proc, as if Farside were not there: its descriptors, its threads, and, in a static
// program, its executable. Async-signal-safe.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// getdents64: /proc/PID/fd and fdinfo have no descriptors of Farside's, /proc/PID/task no threads of Farside's.
long getdents_call(const Call& call);

// fstat, stat and newfstatat, and statx: the links of /proc/PID/task, by which programs count their threads.
long stat_call(const Call& call);
long statx_call(const Call& call);

// readlink, open and stat of /proc/self/exe in a static program. False: another call, or another path.
bool own_executable_call(const Call& call, long* result);

}  // namespace farside::preload
