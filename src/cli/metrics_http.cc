#include "cli/metrics_http.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace farside::cli {
namespace {

constexpr size_t kMaxConnections = 32;  // for a further one, the oldest is closed
constexpr size_t kMaxRequestBytes = 8192;
constexpr uint64_t kTimeoutNs = 5'000'000'000;  // of a connection
constexpr int kPollMs = 200;

bool is_port(std::string_view text) {
  unsigned number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= 65535;
}

Result<int> open_listener(const std::string& address) {
  Result<HostPort> parts = parse_host_port("--metrics", address);
  if (!parts.ok()) return parts.status();
  addrinfo wanted = {};
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int error = getaddrinfo(parts->host.c_str(), parts->port.c_str(), &wanted, &found);
  if (error != 0)
    return Status::error(EINVAL, "{}: {}; write a numeric address, as in 127.0.0.1:9170", address, gai_strerror(error));
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  bool bound = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
  int reason = errno;
  freeaddrinfo(found);
  if (bound) return fd;
  close(fd);
  return Status::error(reason, "cannot serve metrics on {}: {}; choose another --metrics address", address,
                       strerror(reason));
}

uint16_t port_of(int listener) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string reply(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

std::string http_reply(std::string_view request, const MetricsPages& pages) {
  if (!request.starts_with("GET ")) return reply("405 Method Not Allowed", "only GET is supported\n");
  std::string_view target = request.substr(4, request.find_first_of(" ?\r\n", 4) - 4);
  if (target == "/metrics" || target == "/") return reply("200 OK", pages.metrics());
  if (target == "/healthz") return reply("200 OK", "ok\n");
  if (target != "/readyz") return reply("404 Not Found", "known are /metrics, /healthz and /readyz\n");
  Status ready = pages.ready();
  return ready.ok() ? reply("200 OK", "ok\n") : reply("503 Service Unavailable", fmt::format("{}\n", ready.text()));
}

bool HostPort::is_everywhere() const { return host.empty() || host == "0.0.0.0" || host == "::"; }

bool HostPort::is_loopback() const { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

Result<HostPort> parse_host_port(const char* option, const std::string& address) {
  size_t colon = address.rfind(':');
  bool has_host = colon != address.npos && colon > 0;
  std::string port = has_host ? address.substr(colon + 1) : "";
  if (!is_port(port))
    return Status::error(EINVAL, "{}={} is not valid; use HOST:PORT, as in 127.0.0.1:9170, with a port from 0 to 65535",
                         option, address);
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return HostPort{host, port};
}

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::start(const std::string& address, MetricsPages pages) {
  Result<int> listener = open_listener(address);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(*listener, port_of(*listener), std::move(pages)));
}

MetricsEndpoint::MetricsEndpoint(int listener, uint16_t port, MetricsPages pages)
    : listener_(listener), port_(port), pages_(std::move(pages)), thread_([this] { serve(); }) {}

MetricsEndpoint::~MetricsEndpoint() {
  stopping_ = true;
  thread_.join();
  for (const Connection& c : connections_) close(c.fd);
  close(listener_);
}

void MetricsEndpoint::serve() {
  std::vector<pollfd> waited;
  while (!stopping_) {
    waited.assign(1, {listener_, POLLIN, 0});
    for (const Connection& c : connections_)
      waited.push_back({c.fd, static_cast<short>(c.reply.empty() ? POLLIN : POLLOUT), 0});
    poll(waited.data(), waited.size(), kPollMs);
    uint64_t now = now_ns();
    size_t i = 1;
    for (Connection& c : connections_) {
      if (waited[i++].revents != 0) advance(&c);
      if (c.over || now >= c.until_ns) close(std::exchange(c.fd, -1));
    }
    connections_.remove_if([](const Connection& c) { return c.fd < 0; });
    if (waited[0].revents != 0) accept_one();
  }
}

void MetricsEndpoint::accept_one() {
  int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (connections_.size() == kMaxConnections) {
    close(connections_.front().fd);
    connections_.pop_front();
  }
  connections_.push_back({fd, now_ns() + kTimeoutNs, "", ""});
}

void MetricsEndpoint::advance(Connection* connection) {
  if (connection->reply.empty()) receive(connection);
  if (!connection->reply.empty()) send(connection);
}

void MetricsEndpoint::receive(Connection* connection) {
  char piece[1024];
  ssize_t n = recv(connection->fd, piece, sizeof piece, 0);
  if (n < 0 && errno == EAGAIN) return;
  std::string& request = connection->request;
  if (n > 0) request.append(piece, static_cast<size_t>(n));
  bool complete = n <= 0 || request.find("\r\n\r\n") != request.npos || request.size() > kMaxRequestBytes;
  if (complete) connection->reply = http_reply(request, pages_);
}

void MetricsEndpoint::send(Connection* connection) {
  std::string& reply = connection->reply;
  ssize_t n = ::send(connection->fd, reply.data(), reply.size(), MSG_NOSIGNAL);
  if (n < 0 && errno == EAGAIN) return;
  connection->over = n < 0 || static_cast<size_t>(n) == reply.size();
  if (!connection->over) reply.erase(0, static_cast<size_t>(n));
}

}  // namespace farside::cli
