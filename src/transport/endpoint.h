// Where a server is reached: a resolved address, over TCP or a Unix socket, directly or through a relay.
// Async-signal-safe.
#pragma once
#include <sys/socket.h>

#include <cstddef>

namespace farside::transport {

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t length = 0;
  char name[192] = {};   // as given by the user, for messages
  char relay[108] = {};  // path of the socket through which the address is reached over TLS; "": directly
  bool is_unix() const { return address.ss_family == AF_UNIX; }
  bool is_relayed() const { return relay[0] != 0; }
};

// Sets the address of a Unix socket. 0, or -ENAMETOOLONG when the path is empty or does not fit.
int set_unix_path(Endpoint* endpoint, const char* path, size_t length);

}  // namespace farside::transport
