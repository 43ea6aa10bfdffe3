// System calls that move data between files or sockets and the program's buffers: read, write and their vector,
// positioned and message forms. Large transfers are split, so that a call never pins more than pin_limit() at once.
// Async-signal-safe.
//
// A split transfer has the meaning of the call. Writes continue until all is written, an error, or EAGAIN. Reads of
// regular files continue until the buffer is full or the file ends. Other reads stop after the first part, since a
// second one could block where the single call would have returned. An error after the first part ends the transfer
// with the bytes moved so far.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool transfer_call(const Call& call, long* result);

}  // namespace farside::preload
