// ioctl: requests encode the size of their structure, or are in a list of exceptions. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

long ioctl_call(const Call& call);

}  // namespace farside::preload
