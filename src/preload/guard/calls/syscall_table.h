// A table of the memory that the arguments of each system call refer to (system_calls.inc), so that the guard can make
// it near. Calls with lists of pieces and calls that change the address space, signals or processes are executed
// elsewhere: transfers.h, messages.h, futexes.h, ioctls.h, special_calls.h, traps.cc. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"
#include "preload/guard/thread/pins.h"

// The numbers of all system calls, also of those that the installed headers do not have.
namespace farside::preload::call_number {

enum CallNumber : long {
#define CALL(number, name, ...) name = number,
#include "preload/guard/calls/system_calls.inc"
#undef CALL
};

}  // namespace farside::preload::call_number

namespace farside::preload {

// Makes the memory of the arguments near and issues the call. issue_pinned: what issues it.
long table_call(const Call& call, long (*issue_pinned)(const Call&) = issue);

// Pins memory that the kernel may read or write, as far as it is mapped.
void pin_block(Pins& pins, const void* address, uint64_t bytes);
// Pins what the words of a structure refer to, `pointed` bytes each, as far as they are far addresses.
void pin_pointed(Pins& pins, const void* structure, uint64_t bytes, uint64_t pointed);

}  // namespace farside::preload
