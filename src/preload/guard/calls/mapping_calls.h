// Calls about mappings, for which far memory has its own (heap/mappings.h). Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool mapping_call(const Call& call, long* result);

}  // namespace farside::preload
