// Listening sockets.
#pragma once
#include <cstdint>
#include <string>

#include "base/status.h"

namespace farside::server {

// "host:port", "[::1]:port" or ":port" (all interfaces). *port is the actual one.
Result<int> listen_tcp(const std::string& address, uint16_t* port);

// Replaces a socket file that no server answers at any more. Only the own user may connect.
Result<int> listen_unix(const std::string& path);

}  // namespace farside::server
