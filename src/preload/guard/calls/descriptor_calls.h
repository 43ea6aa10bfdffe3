// Calls about descriptors. Those of Farside are hidden from the program, and are not closed. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool descriptor_call(const Call& call, long* result);

// close, close_range, dup2 and dup3 of the program, which must not affect Farside's descriptors.
long guarded_close(int fd);
long guarded_close_range(unsigned first, unsigned last, unsigned flags);
long guarded_dup(long number, int from, int to, int flags);

}  // namespace farside::preload
