// A table of the memory that the arguments of each system call refer to, so that the guard can pin it. Calls with
// nested arguments (iovec, msghdr) and calls that change the address space, signals or processes are not in it:
// transfers.h, special_calls.h, traps.cc. Async-signal-safe.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Issues the system call from the address range that is not trapped.
inline long issue(long number, const long* arg) {
  return os::farside_raw_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
inline long issue(const Call& call) { return issue(call.number, call.arg); }

// Pins the memory of the arguments and issues the call. For calls that are not in the table, all arguments that are far
// addresses are pinned for two pages at most. issue_pinned: what issues it.
long table_call(const Call& call, long (*issue_pinned)(const Call&) = issue);

}  // namespace farside::preload
