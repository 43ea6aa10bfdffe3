// Reaching a memory server: connecting, the greeting, and single requests with a deadline. Async-signal-safe: a channel
// may be opened under a fault. Names were resolved beforehand, when the Endpoint was made.
#pragma once
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "transport/own_fds.h"
#include "wire/protocol.h"

namespace farside::transport {

inline constexpr uint64_t kDialTimeoutNs = 4'500'000'000;

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t length = 0;
  char name[192] = {};  // as the user wrote it, for messages
  bool is_unix() const { return address.ss_family == AF_UNIX; }
};

// Fills in a Unix socket's address. ENAMETOOLONG when the path does not fit.
int set_unix_path(Endpoint* endpoint, const char* path, size_t length);

// Connects. Returns a non-blocking, close-on-exec socket, or -errno. deadline_ns is on the clock of now_ns().
int dial(const Endpoint& endpoint, uint64_t deadline_ns);

// One request and its reply on a connection that has no other request under way. Returns 0; or -errno with
// error->code != 0 when the server answered with an error; or -errno with error->code == 0 when the connection is no
// longer usable. passed_fd (may be null) receives a descriptor that came along, else -1.
int exchange(int fd, wire::Op op, std::span<const std::byte> payload, std::span<std::byte> reply, uint64_t deadline_ns,
             wire::ErrorReply* error, int* passed_fd = nullptr);

// All that it takes to open one more greeted connection.
struct Dialer {
  Endpoint endpoint;
  wire::HelloRequest hello = {};
  OwnFds* fds = nullptr;

  // Returns a descriptor registered in *fds, or -errno with the reason in *status.
  int open(Status* status, wire::HelloReply* reply = nullptr, int* memory_fd = nullptr,
           uint64_t timeout_ns = kDialTimeoutNs) const;
};

}  // namespace farside::transport
