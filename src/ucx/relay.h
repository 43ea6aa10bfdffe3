// The client's side of UCX: a process of a run that owns UCX. Programs connect to its Unix socket and name a server
// (transport/relay_protocol.h), as for TLS; frames that need the server go there over TCP.
#pragma once

namespace farside::ucx {

// Serves the listening socket kGivenFd until kControlFd is closed. Sends one message there when it is ready, "" or why
// UCX cannot be used, and then the number of connections, a uint64_t, in reply to each message. The exit status of the
// process.
int run_relay(const char* transports);

}  // namespace farside::ucx
