// System calls that move data between files or sockets and the program's buffers: read, write and their vector,
// positioned and message forms. Large transfers are split, so that a call never pins more than pin_limit() at once.
//
// A split transfer keeps the call's meaning: writes go on until all is written, an error, or a would-block; reads of
// regular files go on until full or end of file; reads of anything else stop after the first piece, since a second one
// could block where the kernel would have returned what was there. An error after the first piece ends the transfer
// with the bytes moved so far.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Handles the call if it is one of these; false otherwise.
bool transfer_call(const Call& call, long* result);

}  // namespace farside::preload
