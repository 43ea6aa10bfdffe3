#include "cli/metrics_http.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

namespace farside::cli {
namespace {

constexpr int kMaxPieces = 8;  // of a request: bounds the time that a slow client takes
constexpr int kPollMs = 200;
constexpr time_t kTimeoutSeconds = 2;  // of each send and receive

bool is_port(std::string_view text) {
  unsigned number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= 65535;
}

Result<int> open_listener(const std::string& address) {
  Result<HostPort> parts = parse_host_port(address);
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

std::string read_request(int fd) {
  std::string request;
  char piece[1024];
  for (int pieces = 0; pieces < kMaxPieces && request.find("\r\n\r\n") == request.npos; pieces++) {
    ssize_t n = recv(fd, piece, sizeof piece, 0);
    if (n <= 0) break;
    request.append(piece, static_cast<size_t>(n));
  }
  return request;
}

void send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string reply(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

std::string http_reply(std::string_view request, const std::function<std::string()>& text) {
  if (!request.starts_with("GET ")) return reply("405 Method Not Allowed", "only GET is supported\n");
  std::string_view target = request.substr(4, request.find_first_of(" ?\r\n", 4) - 4);
  if (target == "/metrics" || target == "/") return reply("200 OK", text());
  return reply("404 Not Found", "the metrics are at /metrics\n");
}

bool HostPort::is_loopback() const { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

Result<HostPort> parse_host_port(const std::string& address) {
  size_t colon = address.rfind(':');
  bool has_host = colon != address.npos && colon > 0;
  std::string port = has_host ? address.substr(colon + 1) : "";
  if (!is_port(port))
    return Status::error(EINVAL, "'{}' is not an address; write HOST:PORT, as in 127.0.0.1:9170", address);
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return HostPort{host, port};
}

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::start(const std::string& address,
                                                                std::function<std::string()> text) {
  Result<int> listener = open_listener(address);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(*listener, port_of(*listener), std::move(text)));
}

MetricsEndpoint::MetricsEndpoint(int listener, uint16_t port, std::function<std::string()> text)
    : listener_(listener), port_(port), text_(std::move(text)), thread_([this] { serve(); }) {}

MetricsEndpoint::~MetricsEndpoint() {
  stopping_ = true;
  thread_.join();
  close(listener_);
}

void MetricsEndpoint::serve() {
  while (!stopping_) {
    pollfd ready = {listener_, POLLIN, 0};
    if (poll(&ready, 1, kPollMs) <= 0) continue;
    int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    answer(fd);
    close(fd);
  }
}

void MetricsEndpoint::answer(int fd) const {
  timeval timeout = {kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  send_all(fd, http_reply(read_request(fd), text_));
}

}  // namespace farside::cli
