// Listening sockets of a server. Non-blocking, close-on-exec; the caller closes them. Ordinary code.
#pragma once
#include <cstdint>
#include <string>

#include "base/status.h"

namespace farside::server {

// "host:port", "[::1]:port" or ":port" (all interfaces). *port is the port in use, also where 0 was given.
Result<int> listen_tcp(const std::string& address, uint16_t* port);

// Replaces a socket file on which no server listens any more. The file's mode allows connections of its owner only.
Result<int> listen_unix(const std::string& path);

}  // namespace farside::server
