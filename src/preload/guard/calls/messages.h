// sendmsg, recvmsg, sendmmsg, recvmmsg, process_vm_readv and process_vm_writev: calls whose structures refer to lists
// of pieces. One call of the program is one call of the kernel, with a near copy of the structures, so that the
// boundaries of messages, flags and timeouts are the kernel's. Sent bytes beyond kMaxWhole: a message is refused, a
// stream and a list of messages are sent in several calls. Async-signal-safe.
#pragma once
#include "preload/guard/calls/call.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise.
bool message_call(const Call& call, long* result);

// The result of a call whose bytes may not be divided and are too many; with one line on standard error.
long refuse_whole(const char* what, long error);

// Whether the kernel sends what one call writes to the descriptor as one message.
bool is_message_socket(int fd);

}  // namespace farside::preload
