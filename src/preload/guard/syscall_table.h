// What the arguments of each system call point to, so that the guard can pin it. Calls whose arguments nest (iovec,
// msghdr) or that change the address space, signals or processes have code of their own: transfers.h, special_calls.h.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Pins by the table and issues the call. Calls that the table does not know get their pointer-like far arguments
// brought near, and another try after EFAULT.
long table_call(const Call& call);

inline long issue(long number, const long* arg) {
  return os::farside_raw_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
inline long issue(const Call& call) { return issue(call.number, call.arg); }

}  // namespace farside::preload
