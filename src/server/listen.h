// Listening sockets of a server. Non-blocking, close-on-exec; the caller closes them. Ordinary code.
#pragma once
#include <cstdint>
#include <string>

#include "base/status.h"

namespace farside::server {

// "host:port", "[::1]:port" or ":port" (all interfaces). *port is the port in use, also where 0 was given.
Result<int> listen_tcp(const std::string& address, uint16_t* port);

// Replaces a socket file on which no server listens any more. The file's mode allows connections of its owner only, or
// of every user who can reach the path.
Result<int> listen_unix(const std::string& path, bool for_all_users = false);

}  // namespace farside::server
