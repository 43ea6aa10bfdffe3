#include "transport/dial.h"

#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/inject.h"
#include "base/log.h"
#include "base/random.h"
#include "transport/relay_protocol.h"
#include "transport/tcp_options.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::transport {
namespace {

constexpr uint64_t kRetryNs = 1'000'000;
constexpr KeepAlive kKeepAlive = {.idle_s = 5, .interval_s = 1, .probes = 5};
constexpr int kDeadPeerMs = 5000;  // data unacknowledged for this long: the peer has failed

int wait_for(int fd, short events, uint64_t deadline_ns) {
  for (;;) {
    uint64_t now = now_ns();
    if (now >= deadline_ns) return -ETIMEDOUT;
    pollfd p = {fd, events, 0};
    int r = os::poll(&p, 1, static_cast<int>((deadline_ns - now) / 1'000'000) + 1);
    if (r > 0) return 0;
    if (r < 0 && r != -EINTR) return r;
  }
}

int finish_connect(int fd, uint64_t deadline_ns) {
  if (int r = wait_for(fd, POLLOUT, deadline_ns); r < 0) return r;
  int error = 0;
  socklen_t size = sizeof error;
  int r = os::call(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return r < 0 ? r : -error;
}

int connect_before(int fd, const Endpoint& endpoint, uint64_t deadline_ns) {
  for (;;) {
    int r = os::call(SYS_connect, fd, &endpoint.address, endpoint.length);
    if (r == -EINPROGRESS || r == -EINTR) return finish_connect(fd, deadline_ns);
    if (r != -EAGAIN) return r;
    // The backlog of a Unix socket is full, and poll() does not report when it is not.
    if (now_ns() >= deadline_ns) return -ETIMEDOUT;
    os::nanosleep_ns(kRetryNs);
  }
}

int send_all(int fd, const void* data, size_t bytes, uint64_t deadline_ns) {
  auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    ssize_t n = os::send(fd, at, bytes, MSG_DONTWAIT);
    if (n == -EINTR) continue;
    if (n == -EAGAIN) n = wait_for(fd, POLLOUT, deadline_ns);
    if (n < 0) return static_cast<int>(n);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

int receive_all(int fd, void* data, size_t bytes, uint64_t deadline_ns, std::span<int> passed) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    ssize_t n = os::recv_with_fds(fd, at, bytes, passed);
    if (n == 0) return -ECONNRESET;
    if (n == -EINTR) continue;
    if (n == -EAGAIN) n = wait_for(fd, POLLIN, deadline_ns);
    if (n < 0) return static_cast<int>(n);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

void close_passed(std::span<int> passed) {
  for (int& fd : passed) {
    if (fd >= 0) os::close(std::exchange(fd, -1));
  }
}

int send_request(int fd, wire::Op op, std::span<const std::byte> payload, uint64_t deadline_ns) {
  struct {
    wire::FrameHeader header;
    std::byte payload[sizeof(wire::ServerReport)];  // the largest request that is exchanged this way
  } frame;
  if (payload.size() > sizeof frame.payload) return -EINVAL;
  frame.header = wire::make_header(op, 0, 1, static_cast<uint32_t>(payload.size()));
  if (!payload.empty()) memcpy(frame.payload, payload.data(), payload.size());
  frame.header.crc = wire::crc32c(wire::header_crc(frame.header), payload.data(), payload.size());
  return send_all(fd, &frame, sizeof frame.header + payload.size(), deadline_ns);
}

// bytes: receives the size of a reply that may be shorter; null: it has the size of `reply`.
int receive_reply(int fd, wire::Op op, std::span<std::byte> reply, uint64_t deadline_ns, wire::ErrorReply* error,
                  std::span<int> passed, size_t* bytes = nullptr) {
  wire::FrameHeader header;
  do {
    if (int r = receive_all(fd, &header, sizeof header, deadline_ns, passed); r < 0) return r;
    if (int r = wire::check_reply_header(header); r < 0) return r;
  } while (wire::is_news(header));
  bool is_error = header.op == static_cast<uint8_t>(wire::Op::kError);
  wire::ErrorReply raw;
  std::span<std::byte> body = is_error ? std::as_writable_bytes(std::span(&raw, 1)) : reply;
  if (bytes && !is_error && header.payload_bytes < body.size()) body = body.first(header.payload_bytes);
  if (header.request != 1 || header.payload_bytes != body.size()) return -EBADMSG;
  if (!is_error && header.op != static_cast<uint8_t>(op)) return -EBADMSG;
  if (int r = receive_all(fd, body.data(), body.size(), deadline_ns, passed); r < 0) return r;
  if (wire::crc32c(wire::header_crc(header), body.data(), body.size()) != header.crc) return -EBADMSG;
  if (bytes) *bytes = body.size();
  return is_error ? wire::decode_error(body, error) : 0;
}

// A new connection: one end of a pair of sockets, whose other end the server receives over an existing connection. One
// message without a reply, so that threads need no lock, and a connection that is used for requests stays usable.
int pass_connection(int passing_fd) {
  int ends[2];
  int r = os::call(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
  if (r < 0) return r;
  wire::FrameHeader frame = wire::make_header(wire::Op::kConnect, 0, 1, 0);
  frame.crc = wire::header_crc(frame);
  ssize_t sent = os::send_with_fds(passing_fd, &frame, sizeof frame, {&ends[1], 1});
  os::close(ends[1]);
  if (sent == static_cast<ssize_t>(sizeof frame)) return ends[0];
  os::close(ends[0]);
  return sent < 0 ? static_cast<int>(sent) : -EPIPE;
}

const char* peer(const Dialer& dialer) { return dialer.to_controller ? "controller" : "memory server"; }

int send_relay_request(int fd, const Endpoint& endpoint, uint64_t deadline_ns) {
  RelayRequest request = {endpoint.address, endpoint.length, {}};
  memcpy(request.name, endpoint.name, sizeof request.name);
  return send_all(fd, &request, sizeof request, deadline_ns);
}

int receive_relay_reply(int fd, uint64_t deadline_ns, RelayReply* reply) {
  int r = receive_all(fd, reply, sizeof *reply, deadline_ns, {});
  return r < 0 ? r : -reply->error;
}

// As exchange(); `relayed`, if it is not null, is filled in before the reply.
int exchange_once(int fd, wire::Op op, std::span<const std::byte> payload, std::span<std::byte> reply,
                  uint64_t deadline_ns, wire::ErrorReply* error, std::span<int> passed, RelayReply* relayed) {
  error->code = 0;
  std::fill(passed.begin(), passed.end(), -1);
  int r = send_request(fd, op, payload, deadline_ns);
  if (r == 0 && relayed) r = receive_relay_reply(fd, deadline_ns, relayed);
  if (r == 0) r = receive_reply(fd, op, reply, deadline_ns, error, passed);
  if (r < 0) close_passed(passed);
  return r;
}

Status loss_of(const char* name, int error, uint64_t silence_ns, const char* refusal) {
  if (refusal) return Status::error(-error, "memory server {} is lost: {}", name, refusal);
  if (error == -EBADMSG) {
    return Status::error(
        EBADMSG,
        "memory server {} is lost: what it sent is not Farside's protocol. Install the same version of "
        "farside on both sides, and check what is between them",
        name);
  }
  if (error == -ETIMEDOUT) {
    return Status::error(
        ETIMEDOUT,
        "memory server {} is lost: it has not responded for {:.1f} s (--patience). Check that it runs, "
        "is not stopped, and can be reached",
        name, static_cast<double>(silence_ns) / 1e9);
  }
  return Status::error(ECONNRESET,
                       "memory server {} is lost: it closed the connection and accepts no new one. Check why it ended, "
                       "and restart it",
                       name);
}

Status greeting_failed(const Dialer& dialer, int code, const wire::ErrorReply& error) {
  const char* name = dialer.endpoint.name;
  if (code == -EPROTONOSUPPORT) {
    return Status::error(EPROTONOSUPPORT,
                         "{} {} uses another version of the protocol (this side uses {}); install the "
                         "same version of farside on both sides",
                         peer(dialer), name, wire::kVersion);
  }
  if (error.code == EACCES) {
    return Status::error(EACCES, "{} {} rejected the token; use the one that it was started with (--token-file)",
                         peer(dialer), name);
  }
  if (code == -EKEYREJECTED) {
    return Status::error(EACCES,
                         "{} did not prove that it knows the token, so it gets no data: it is not the {} "
                         "that was meant; check its address and what listens there",
                         name, peer(dialer));
  }
  if (error.code != 0) return Status::error(-code, "{} {} rejected the connection: {}", peer(dialer), name, error.text);
  if (code == -EBADMSG) return Status::error(EBADMSG, "{} is not a Farside server", name);
  return Status::error(
      -code, "{} {} accepted the connection but sent no reply ({}); check whether it is stopped or overloaded",
      peer(dialer), name, code == -ETIMEDOUT ? "timeout" : "it closed the connection");
}

const char* reason(int code) {
  switch (code) {
    case -ECONNREFUSED:
      return "connection refused";
    case -ENOENT:
      return "no such socket";
    case -ETIMEDOUT:
      return "no reply";
    case -EACCES:
    case -EPERM:
      return "permission denied";
    case -ENETUNREACH:
    case -EHOSTUNREACH:
      return "no route to host";
    case -EMFILE:
    case -ENFILE:
      return "too many open files";
    default:
      return "connection failed";
  }
}

Status dialing_failed(const Dialer& dialer, int code) {
  const Endpoint& endpoint = dialer.endpoint;
  const char* scheme = strstr(endpoint.name, "://");
  const char* place = scheme ? scheme + 3 : endpoint.name;
  const char* option = endpoint.is_unix() ? "--unix" : dialer.to_controller ? "--controller --listen" : "--listen";
  return Status::error(-code, "cannot reach {} {}: {}; start it with 'farside serve {} {}' or check its address",
                       peer(dialer), endpoint.name, reason(code), option, fmt::string_view(place, strcspn(place, "?")));
}

Status relay_failed(const Dialer& dialer, const RelayReply& reply) {
  if (reply.text[0] == 0) return dialing_failed(dialer, -reply.error);
  return Status::error(reply.error, "cannot reach {} {} over TLS: {}", peer(dialer), dialer.endpoint.name, reply.text);
}

Status relay_lost(const Dialer& dialer, int code) {
  return Status::error(-code, "cannot reach {} {}: the relay of 'farside run' is gone ({})", peer(dialer),
                       dialer.endpoint.name, reason(code));
}

}  // namespace

int set_unix_path(Endpoint* endpoint, const char* path, size_t length) {
  sockaddr_un address = {};
  if (length == 0 || length >= sizeof address.sun_path) return -ENAMETOOLONG;
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path, length);
  memcpy(&endpoint->address, &address, sizeof address);
  endpoint->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + 1);
  return 0;
}

int open_socket(int family) {
  if (inject::fails("socket")) return -EMFILE;
  int fd = os::call(SYS_socket, family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && family != AF_UNIX) {
    set_tcp_options(fd, kKeepAlive);
    set_tcp_timeout(fd, kDeadPeerMs);
  }
  return fd;
}

int dial(const Endpoint& endpoint, uint64_t deadline_ns) {
  if (inject::fails("dial")) return -ECONNREFUSED;
  Endpoint relay;
  if (endpoint.is_relayed()) set_unix_path(&relay, endpoint.relay, strlen(endpoint.relay));
  const Endpoint& to = endpoint.is_relayed() ? relay : endpoint;
  int fd = open_socket(to.address.ss_family);
  if (fd < 0) return fd;
  int r = connect_before(fd, to, deadline_ns);
  if (r == 0) return fd;
  os::close(fd);
  return r;
}

int exchange(int fd, wire::Op op, std::span<const std::byte> payload, std::span<std::byte> reply, uint64_t deadline_ns,
             wire::ErrorReply* error, std::span<int> passed) {
  return exchange_once(fd, op, payload, reply, deadline_ns, error, passed, nullptr);
}

namespace {

bool is_readable(int fd, uint64_t timeout_ns) {
  pollfd p = {fd, POLLIN, 0};
  return os::poll(&p, 1, static_cast<int>((timeout_ns + 999'999) / 1'000'000)) > 0;
}

}  // namespace

int exchange_frame(int fd, wire::Op op, std::span<std::byte> frame, std::span<std::byte> reply, size_t* reply_bytes,
                   uint64_t deadline_ns, ReplyTimes& times, wire::ErrorReply* error) {
  auto payload = frame.subspan(sizeof(wire::FrameHeader));
  auto header = wire::make_header(op, 0, 1, static_cast<uint32_t>(payload.size()));
  header.crc = wire::crc32c(wire::header_crc(header), payload.data(), payload.size());
  memcpy(frame.data(), &header, sizeof header);
  error->code = 0;
  if (int r = send_all(fd, frame.data(), frame.size(), deadline_ns); r < 0) return r;
  bool ready = false;
  auto poll_for = [&](uint64_t ns) { ready = is_readable(fd, ns); };
  uint64_t now = now_ns();
  bool in_time = wait_until(
      times, deadline_ns - std::min(now, deadline_ns), [&] { return ready; }, [&] { poll_for(0); }, poll_for);
  return in_time ? receive_reply(fd, op, reply, deadline_ns, error, {}, reply_bytes) : -ETIMEDOUT;
}

namespace {

template <typename T>
std::span<std::byte> writable_bytes(T* value) {
  return std::as_writable_bytes(std::span(value, 1));
}

// The proofs of both sides. Results as those of exchange(); -EKEYREJECTED: the server does not know the key.
int prove(int fd, const wire::Key& key, const wire::Greeting& greeting, uint64_t deadline_ns, wire::HelloReply* reply,
          wire::ErrorReply* error, std::span<int> passed) {
  wire::Proof proof = wire::client_proof(key, greeting);
  int r = exchange(fd, wire::Op::kProve, wire::bytes_of(proof), writable_bytes(reply), deadline_ns, error, passed);
  if (r < 0) return r;
  wire::Proof expected = wire::server_proof(key, greeting, *reply);
  bool proven = wire::same_secret(&expected, reply->proof, sizeof expected);
  if (!proven) close_passed(passed);
  if (!proven) return -EKEYREJECTED;
  wire::mask_secret(key, greeting, reply);
  return wire::decode_hello_reply(wire::bytes_of(*reply), reply);
}

}  // namespace

int Dialer::greet(int fd, uint64_t deadline_ns, wire::HelloReply* reply, std::span<int> passed, Status* status) const {
  wire::Greeting greeting = {hello, {}};
  fill_random(greeting.hello.nonce, sizeof greeting.hello.nonce);
  wire::ErrorReply error = {};
  RelayReply relayed = {};
  int r = endpoint.is_relayed() ? send_relay_request(fd, endpoint, deadline_ns) : 0;
  if (r == 0) {
    r = exchange_once(fd, wire::Op::kHello, wire::bytes_of(greeting.hello), writable_bytes(&greeting.challenge),
                      deadline_ns, &error, {}, endpoint.is_relayed() ? &relayed : nullptr);
  }
  if (r == 0) r = prove(fd, key, greeting, deadline_ns, reply, &error, passed);
  if (r < 0) *status = relayed.error != 0 ? relay_failed(*this, relayed) : greeting_failed(*this, r, error);
  return r;
}

int Dialer::open(Status* status, wire::HelloReply* reply, std::span<int> passed, uint64_t timeout_ns) const {
  uint64_t deadline = now_ns() + timeout_ns;
  int fd = passing_fd >= 0 ? pass_connection(passing_fd) : dial(endpoint, deadline);
  if (fd < 0) {
    *status = endpoint.is_relayed() ? relay_lost(*this, fd) : dialing_failed(*this, fd);
    return fd;
  }
  wire::HelloReply answer;
  int r = greet(fd, deadline, &answer, passed, status);
  if (r < 0) {
    os::close(fd);
    return r;
  }
  fd = fds->adopt(fd);
  if (fd == -EMFILE)
    *status = Status::error(EMFILE, "too many open files: no descriptor for a connection to {}", endpoint.name);
  else if (fd < 0) *status = Status::error(-fd, "{} is not used any more", endpoint.name);
  if (fd >= 0 && reply) *reply = answer;
  return fd;
}

void Dialer::report_loss(int error, uint64_t silence_ns, const char* refusal) const {
  if (failures) failures->report(loss_of(endpoint.name, error, silence_ns, refusal));
}

void Dialer::report_refusal(int code, const char* text) const {
  if (!failures) return;
  bool full = code == ENOMEM || code == EIO || code == ENOSPC;
  failures->report(Status::error(code, "memory server {} refused a request: {}. {}", endpoint.name, text,
                                 full ? "Give it more memory (farside serve --memory): forked processes need memory of "
                                        "their own for what they change"
                                      : "Check its log"));
}

void Dialer::warn_of_silence(uint64_t silence_ns, uint64_t limit_ns) const {
  if (!failures || failures->silence_logged.exchange(true)) return;
  log(LogLevel::kWarning,
      "memory server {} has not responded for {:.1f} s; the program waits for it, {:.1f} s at most (--patience)",
      endpoint.name, static_cast<double>(silence_ns) / 1e9, static_cast<double>(limit_ns) / 1e9);
}

void Dialer::warn_of_damage() const {
  if (!failures || failures->damage_logged.exchange(true)) return;
  log(LogLevel::kWarning, "a message from memory server {} was damaged, and is requested again; check the network",
      endpoint.name);
}

void Dialer::silence_is_over() const {
  if (failures) failures->silence_logged.store(false);
}

}  // namespace farside::transport
