// What a program sees of itself in /proc, as if Farside were not there: its descriptors, its threads, its memory, and,
// in a static program, its executable. Async-signal-safe.
#pragma once
#include <string_view>

#include "preload/guard/calls/call.h"

namespace farside::preload {

// getdents64: /proc/PID/fd and fdinfo have no descriptors of Farside's, /proc/PID/task no threads of Farside's.
long getdents_call(const Call& call);

// fstat, stat and newfstatat, and statx: the links of /proc/PID/task, by which programs count their threads.
long stat_call(const Call& call);
long statx_call(const Call& call);

// readlink, open and stat of /proc/self/exe in a static program. False: another call, or another path.
bool own_executable_call(const Call& call, long* result);

// Whether the descriptor is a file of this process or of a thread of it in /proc. name: such as "/stat". Two system
// calls.
bool is_own_file(int fd, std::string_view name);

// ---- /proc/PID/mem of this process. The kernel reads and writes memory through it without waiting for a page, so far
// pages of a transfer must be near before. Such files are found by what a transfer does, not by how they were opened:
// its position is a far address. ----

// Whether the descriptor is the memory of this process. Two system calls.
bool is_own_memory(int fd);

// Whether the program has moved a file's position to a far address. Then transfers without an offset look for it.
bool seeks_own_memory();
// lseek.
long seek_call(const Call& call);
// The file's position, if the program seeks in its memory or has met an error there; else 0.
long own_memory_position(int fd);

}  // namespace farside::preload
