// System calls that wait with a signal mask of their own: rt_sigsuspend, ppoll, pselect6, epoll_pwait. The kernel gets
// the mask without SIGBUS and SIGSYS, and an interrupted wait is continued as interruptions.h says. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool masked_wait_call(const Call& call, long* result);

// Whether the call is one of these and waited with a mask, t_guard.wait_mask.
bool waits_with_mask(const Call& call);

}  // namespace farside::preload
