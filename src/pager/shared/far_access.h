// What all requests to memory servers have in common: their time limit, and the end of a process whose far memory is
// lost.
#pragma once
#include "remote/remote_store.h"

namespace farside::pager {

// Time limit of one request to a memory server, in nanoseconds. The transport repeats requests and reconnects within
// it.
inline constexpr uint64_t kTransportTimeoutNs = 30ull * 1000 * 1000 * 1000;

// Ends the process with a message: far pages of the program are lost. To continue would mean zeros in their place, or a
// hang.
[[noreturn]] void die_of_lost_memory(remote::RemoteStore* store, int error);

}  // namespace farside::pager
