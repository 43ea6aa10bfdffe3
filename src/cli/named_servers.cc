#include "cli/named_servers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <filesystem>
#include <map>
#include <string>

#include "remote/address.h"

namespace farside::cli {
namespace {

namespace fs = std::filesystem;

std::string socket_of(const sockaddr_in& address) {
  bool loops_back = address.sin_addr.s_addr == htonl(INADDR_LOOPBACK);  // as ::1: localhost is either
  char host[INET_ADDRSTRLEN] = "loopback";
  if (!loops_back) inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(address.sin_port));
}

std::string socket_of(const sockaddr_in6& address) {
  const in6_addr& ip = address.sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ip)) {
    sockaddr_in mapped = {.sin_family = AF_INET, .sin_port = address.sin6_port, .sin_addr = {}, .sin_zero = {}};
    memcpy(&mapped.sin_addr, ip.s6_addr + 12, sizeof mapped.sin_addr);
    return socket_of(mapped);
  }
  char host[INET6_ADDRSTRLEN] = "loopback";
  if (!IN6_IS_ADDR_LOOPBACK(&ip)) inet_ntop(AF_INET6, &ip, host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(address.sin6_port));
}

// The same text for every name of one socket, or "".
std::string socket_of(const transport::Endpoint& endpoint) {
  const void* address = &endpoint.address;
  std::error_code ignored;
  switch (endpoint.is_relayed() ? AF_UNSPEC : endpoint.address.ss_family) {
    case AF_INET:
      return socket_of(*static_cast<const sockaddr_in*>(address));
    case AF_INET6:
      return socket_of(*static_cast<const sockaddr_in6*>(address));
    case AF_UNIX:
      return fs::weakly_canonical(static_cast<const sockaddr_un*>(address)->sun_path, ignored).string();
    default:
      return "";
  }
}

}  // namespace

Status check_servers_differ(std::string_view addresses) {
  std::map<std::string, std::string> names;  // by socket
  while (!addresses.empty()) {
    std::string name(addresses.substr(0, addresses.find(',')));
    addresses.remove_prefix(std::min(addresses.size(), name.size() + 1));
    auto address = remote::parse_address(name.c_str());
    std::string socket = address.ok() ? socket_of(address->endpoint) : "";
    if (socket.empty()) continue;
    auto [other, is_new] = names.emplace(socket, name);
    if (!is_new) return Status::error(EINVAL, "--far names one server twice, as {} and {}", other->second, name);
  }
  return {};
}

}  // namespace farside::cli
