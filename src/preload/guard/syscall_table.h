// A table of the memory that the arguments of each system call refer to, so that the guard can pin it. Calls with
// nested arguments (iovec, msghdr) and calls that change the address space, signals or processes are not in it:
// transfers.h, special_calls.h, traps.cc. Async-signal-safe.
#pragma once
#include "preload/guard/guard.h"
#include "preload/guard/interruptions.h"

namespace farside::preload {

// Issues the system call from the address range that is not trapped. kNotIssued if a signal has arrived meanwhile.
inline long issue(const Call& call) { return farside_interruptible_call(call.number, call.arg); }
// The same, also if a signal has arrived. For calls that do not wait.
inline long issue_uninterrupted(const Call& call) {
  const long* a = call.arg;
  return os::farside_raw_syscall(call.number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// Pins the memory of the arguments and issues the call. For calls that are not in the table, all arguments that are far
// addresses are pinned for two pages at most. issue_pinned: what issues it.
long table_call(const Call& call, long (*issue_pinned)(const Call&) = issue);

}  // namespace farside::preload
