// Who the client of a connection is, as far as the kernel knows: for limits, logs and metrics. Ordinary code.
#pragma once
#include <string>

struct sockaddr_storage;

namespace farside::server {

struct Peer {
  std::string name;    // host and port, or the user and process of a Unix socket, for messages
  std::string source;  // see source_of()
  bool is_local;       // the client runs on this machine, and shares its cores
};
Peer peer_of(int fd);

std::string name_of(int fd, const sockaddr_storage& address);

// The host that a connection comes from: an IPv4 address, the network (/64) of an IPv6 address, or "unix".
std::string source_of(const sockaddr_storage& address);
// Whether the two ends of a connection are on one machine: they have the same address.
bool is_same_machine(const sockaddr_storage& own, const sockaddr_storage& peer);

}  // namespace farside::server
