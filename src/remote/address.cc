#include "remote/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <string_view>

namespace farside::remote {
namespace {

using std::string_view;

constexpr string_view kPool = "pool://";

template <typename T>
bool parse_number(string_view text, T* out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

Status parse_link(string_view query, transport::ShmRegion::Link* link) {
  while (!query.empty()) {
    size_t end = query.find('&');
    string_view setting = query.substr(0, end);
    query = end == string_view::npos ? string_view() : query.substr(end + 1);
    size_t equals = setting.find('=');
    string_view name = setting.substr(0, equals);
    double* target = name == "latency_us" ? &link->latency_us : name == "gbps" ? &link->gbps : nullptr;
    bool good = target && equals != string_view::npos && parse_number(setting.substr(equals + 1), target);
    if (!good || !(*target >= 0 && *target <= 1e6)) {
      return Status::error(EINVAL, "'{}' is not a setting of shm://; write latency_us=4 or gbps=10", setting);
    }
  }
  return {};
}

Status parse_shm(string_view rest, Address* out) {
  size_t question = rest.find('?');
  string_view path = rest.substr(0, question);
  if (transport::set_unix_path(&out->endpoint, path.data(), path.size()) < 0) {
    return Status::error(EINVAL, "'{}' is not a path of a Unix socket, which has 1 to 107 bytes", path);
  }
  return question == string_view::npos ? Status() : parse_link(rest.substr(question + 1), &out->link);
}

bool set_numeric(const char* host, uint16_t port, transport::Endpoint* endpoint) {
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    memcpy(&endpoint->address, &v4, sizeof v4);
    endpoint->length = sizeof v4;
    return true;
  }
  if (inet_pton(AF_INET6, host, &v6.sin6_addr) != 1) return false;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  memcpy(&endpoint->address, &v6, sizeof v6);
  endpoint->length = sizeof v6;
  return true;
}

Status look_up(const char* host, uint16_t port, transport::Endpoint* endpoint) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int r = getaddrinfo(host, nullptr, &hints, &found);
  if (r != 0) {
    return Status::error(EHOSTUNREACH, "cannot resolve the host of memory server {}: {}; check --far", endpoint->name,
                         gai_strerror(r));
  }
  memcpy(&endpoint->address, found->ai_addr, found->ai_addrlen);
  endpoint->length = found->ai_addrlen;
  freeaddrinfo(found);
  auto* port_field = endpoint->address.ss_family == AF_INET6
                         ? &reinterpret_cast<sockaddr_in6&>(endpoint->address).sin6_port
                         : &reinterpret_cast<sockaddr_in&>(endpoint->address).sin_port;
  *port_field = htons(port);
  return {};
}

Status parse_tcp(string_view rest, Address* out) {
  size_t colon = rest.rfind(':');
  uint16_t port = 0;
  if (colon == string_view::npos || !parse_number(rest.substr(colon + 1), &port) || port == 0) {
    return Status::error(EINVAL, "'{}' has no valid port; write host:port, with a port from 1 to 65535",
                         out->endpoint.name);
  }
  string_view host = rest.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  char name[sizeof out->endpoint.name] = {};
  if (host.empty()) return Status::error(EINVAL, "'{}' has no host; write host:port", out->endpoint.name);
  host.copy(name, sizeof name - 1);
  return set_numeric(name, port, &out->endpoint) ? Status() : look_up(name, port, &out->endpoint);
}

}  // namespace

Result<Address> parse_address(const char* text) {
  Address out;
  string_view all(text);
  if (all.size() >= sizeof out.endpoint.name) {
    return Status::error(EINVAL, "the address of the memory server is longer than {} bytes",
                         sizeof out.endpoint.name - 1);
  }
  all.copy(out.endpoint.name, all.size());
  Status status;
  if (all.starts_with("tcp://")) status = parse_tcp(all.substr(6), &out);
  else if (all.starts_with("shm://")) status = parse_shm(all.substr(6), &out);
  else if (all.starts_with(kPool)) status = parse_tcp(all.substr(kPool.size()), &out);
  else
    status = Status::error(EINVAL,
                           "'{}' is not an address of a memory server; write tcp://host:port, shm://path or "
                           "pool://host:port",
                           text);
  if (!status.ok()) return status;
  out.is_pool = all.starts_with(kPool);
  return out;
}

}  // namespace farside::remote
