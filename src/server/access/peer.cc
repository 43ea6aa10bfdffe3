#include "server/access/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace farside::server {
namespace {

std::string text_of_address(int family, const void* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, bytes, text, sizeof text);
  return text;
}

// An IPv4 client of an IPv6 socket is shown as IPv4.
const void* ipv4_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six) ? &six.s6_addr[12] : nullptr;
}

}  // namespace

Peer peer_of(int fd) {
  sockaddr_storage peer = {}, own = {};
  socklen_t length = sizeof peer, own_length = sizeof own;
  getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length);
  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length);
  return {name_of(fd, peer), source_of(peer), is_same_machine(own, peer)};
}

std::string name_of(int fd, const sockaddr_storage& address) {
  if (const void* four = ipv4_of(address)) {
    auto port = reinterpret_cast<const sockaddr_in&>(address).sin_port;  // at the same place for IPv6
    return fmt::format("{}:{}", text_of_address(AF_INET, four), ntohs(port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    return fmt::format("[{}]:{}", text_of_address(AF_INET6, &six.sin6_addr), ntohs(six.sin6_port));
  }
  ucred user = {};
  socklen_t size = sizeof user;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size);
  return fmt::format("unix:uid={},pid={}", user.uid, user.pid);
}

std::string source_of(const sockaddr_storage& address) {
  if (const void* four = ipv4_of(address)) return text_of_address(AF_INET, four);
  if (address.ss_family != AF_INET6) return "unix";
  in6_addr network = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  memset(&network.s6_addr[8], 0, 8);
  return text_of_address(AF_INET6, &network);
}

bool is_same_machine(const sockaddr_storage& own, const sockaddr_storage& peer) {
  const void *four = ipv4_of(own), *peer_four = ipv4_of(peer);
  if (four || peer_four) return four && peer_four && memcmp(four, peer_four, sizeof(in_addr)) == 0;
  if (peer.ss_family != AF_INET6) return true;  // a Unix socket
  const auto &six = reinterpret_cast<const sockaddr_in6&>(own), &peer_six = reinterpret_cast<const sockaddr_in6&>(peer);
  return memcmp(&six.sin6_addr, &peer_six.sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace farside::server
