// System calls that move data between files or sockets and the program's buffers: read, write and their vector and
// positioned forms. Up to kMaxWhole bytes (near_pieces.h) are one call of the kernel, whatever the number of pieces.
// Async-signal-safe.
//
// Longer ones are several calls, if the kernel may divide them: writes continue until all is written, an error, or
// EAGAIN; reads of regular files until the buffer is full or the file ends. Other reads stop after the first part,
// since a second one could block where the single call would have returned. An error after the first part ends the
// transfer with the bytes moved so far. Messages and appended records are refused, since others could come between
// their parts.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these or of messages.h and stores the kernel's result; false otherwise.
bool transfer_call(const Call& call, long* result);

}  // namespace farside::preload
