// Alternate signal stacks. In signal mode the kernel knows one of Farside's for each thread, which is near and larger
// than those of programs. The program's own is only recorded. Async-signal-safe.
#pragma once
#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace farside::preload {

inline constexpr size_t kSignalStackBytes = 256 * kKiB;  // addresses; memory only for pages that were used

// In handler mode, after a fork: gives the thread's alternate stack back to the program.
void leave_alternate_stack();

// Enables or disables the calling thread's alternate signal stack. Workers of fibers disable it: a fiber that faults is
// suspended inside the handler, so the signal frame must be on the fiber's stack.
void use_alternate_stack(bool use);

// sigaltstack of the program: records the stack. To a handler that runs on Farside's, that one is returned. 0 or
// -errno.
long guarded_sigaltstack(const stack_t* stack, stack_t* old, uint64_t stack_pointer);

}  // namespace farside::preload
