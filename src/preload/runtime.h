// The preload library as a whole: reads the options, connects, sets up pager, guard and heap before main(), and reports
// at the end. The process's only mutable globals live in this layer.
#pragma once
#include "abi/options.h"

namespace farside::preload {

// True if the descriptor is one of Farside's own.
bool owns_fd(int fd);

// Appends this process's statistics, and its trace, to the launcher's files, once.
void report_at_exit();

// The calling thread is about to end.
void forget_thread();

// This process is the child of a fork: what it counts and reports begins anew.
void note_fork_in_child();

bool in_handler_mode();

}  // namespace farside::preload
