// One system call of the program, and how it is issued. Async-signal-safe.
#pragma once
#include <cstdint>

#include "base/os.h"
#include "preload/guard/signals/interruptions.h"

namespace farside::preload {

// With the program's arguments.
struct Call {
  long number;
  long arg[6];
  uint64_t stack_pointer;  // of the program, to identify the frame
};

// Issues the system call from the address range that is not trapped. kNotIssued if a signal has arrived meanwhile.
inline long issue(const Call& call) { return farside_interruptible_call(call.number, call.arg); }
// The same, also if a signal has arrived. For calls that do not wait.
inline long issue_uninterrupted(const Call& call) {
  const long* a = call.arg;
  return os::farside_raw_syscall(call.number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // namespace farside::preload
