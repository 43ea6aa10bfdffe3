#include "remote/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "base/bits.h"
#include "base/log.h"
#include "base/size.h"
#include "wire/protocol.h"

namespace farside::remote {
namespace {

using std::string_view;

constexpr string_view kShm = "shm://", kFile = "file:";

// The schemes of addresses over TCP.
struct Scheme {
  string_view prefix;
  bool is_pool;
  enum { kNone, kTls, kUcx } relay;
};
constexpr Scheme kSchemes[] = {{"tcp://", false, Scheme::kNone},
                               {"tls://", false, Scheme::kTls},
                               {"ucx://", false, Scheme::kUcx},
                               {"pool://", true, Scheme::kNone},
                               {"pool+tls://", true, Scheme::kTls}};

template <typename T>
bool parse_number(string_view text, T* out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// Removes the first setting of "a=1&b=2" and returns it.
string_view take_setting(string_view* query) {
  size_t end = query->find('&');
  string_view setting = query->substr(0, end);
  *query = end == string_view::npos ? string_view() : query->substr(end + 1);
  return setting;
}

Status parse_link(string_view query, transport::ShmRegion::Link* link) {
  while (!query.empty()) {
    string_view setting = take_setting(&query);
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

Status parse_file_setting(string_view setting, FileSettings* file) {
  if (setting.starts_with("size=")) {
    Result<uint64_t> bytes = parse_size(setting.substr(5));
    if (bytes.ok()) file->bytes = align_up(*bytes, wire::kSlabBytes);
    return bytes.status();
  }
  if (setting == "alloc=full") file->is_allocated = true;
  else if (setting == "keep=wipe") file->wipe = true;
  else if (setting == "crypt=yes") file->crypt = true;
  else if (setting != "alloc=demand" && setting != "keep=no" && setting != "crypt=no") {
    return Status::error(
        EINVAL, "'{}' is not a setting of file:; write size=64G, alloc=full, keep=no, keep=wipe or crypt=yes", setting);
  }
  return {};
}

Status parse_file(string_view rest, FileSettings* file) {
  size_t question = rest.find('?');
  string_view path = rest.substr(0, question),
              query = question == rest.npos ? string_view() : rest.substr(question + 1);
  if (path.empty() || path.front() != '/' || path.size() >= sizeof file->path)
    return Status::error(EINVAL, "'{}' is not an absolute path of a far file, which has 1 to {} bytes", path,
                         sizeof file->path - 1);
  path.copy(file->path, path.size());
  while (!query.empty()) {
    if (Status s = parse_file_setting(take_setting(&query), file); !s.ok()) return s;
  }
  return {};
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

Status parse_tcp(string_view rest, HostNames names, Address* out) {
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
  if (set_numeric(name, port, &out->endpoint)) return {};
  if (names == HostNames::kResolved) return look_up(name, port, &out->endpoint);
  return Status::error(EHOSTUNREACH, "'{}' has no numeric address", out->endpoint.name);
}

Status set_relay(const char* protocol, const char* path, transport::Endpoint* endpoint) {
  size_t bytes = path ? strlen(path) : 0;
  if (bytes == 0 || bytes >= sizeof endpoint->relay) {
    return Status::error(EINVAL, "{} cannot be reached here: {} needs the relay that 'farside run' starts",
                         endpoint->name, protocol);
  }
  memcpy(endpoint->relay, path, bytes);
  return {};
}

const Scheme* scheme_of(string_view text) {
  for (const Scheme& scheme : kSchemes) {
    if (text.starts_with(scheme.prefix)) return &scheme;
  }
  return nullptr;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

Status check_plain_text(const Address& address, PlainText plain_text) {
  bool is_safe = address.is_shm() || address.is_file() || address.is_tls() || is_loopback(address.endpoint.address);
  if (is_safe || plain_text == PlainText::kAllowed) return {};
  if (plain_text == PlainText::kRefused) {
    return Status::error(EACCES, "{} would be reached without encryption, which --tls required forbids; use {}",
                         address.endpoint.name, address.is_pool ? "pool+tls://HOST:PORT" : "tls://HOST:PORT");
  }
  log(LogLevel::kWarning, "the connection to {} is not encrypted: who reads the network sees the data; use {}",
      address.endpoint.name, address.is_pool ? "pool+tls://HOST:PORT" : "tls://HOST:PORT");
  return {};
}

Result<Address> parse_address(const char* text, Relays relays, HostNames names) {
  Address out;
  string_view all(text);
  if (all.size() >= sizeof out.endpoint.name) {
    return Status::error(EINVAL, "the address of the memory server is longer than {} bytes",
                         sizeof out.endpoint.name - 1);
  }
  all.copy(out.endpoint.name, all.size());
  Status status;
  if (all.starts_with(kShm)) {
    status = parse_shm(all.substr(kShm.size()), &out);
  } else if (all.starts_with(kFile)) {
    status = parse_file(all.substr(kFile.size()), &out.file);
  } else if (const Scheme* scheme = scheme_of(all)) {
    out.is_pool = scheme->is_pool;
    status = parse_tcp(all.substr(scheme->prefix.size()), names, &out);
    out.is_ucx = scheme->relay == Scheme::kUcx;
    if (status.ok() && scheme->relay == Scheme::kTls) status = set_relay("TLS", relays.tls, &out.endpoint);
    if (status.ok() && out.is_ucx) status = set_relay("UCX", relays.ucx, &out.endpoint);
  } else {
    status = Status::error(EINVAL,
                           "'{}' is not an address of a memory server; write tcp://host:port, tls://host:port, "
                           "ucx://host:port, shm://path, file:/path?size=64G, pool://host:port or pool+tls://host:port",
                           text);
  }
  if (!status.ok()) return status;
  return out;
}

}  // namespace farside::remote
