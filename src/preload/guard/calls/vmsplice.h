// vmsplice. The pages of a pipe stay what they were when they entered it, so far memory is copied first.
// Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

long vmsplice_call(const Call& call);

}  // namespace farside::preload
