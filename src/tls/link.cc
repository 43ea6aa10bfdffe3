#include "tls/link.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/clock.h"
#include "base/os.h"
#include "transport/dial.h"

namespace farside::tls {
namespace {

// "tls://host:port" or "pool+tls://[::1]:port" -> host.
std::string host_of(std::string_view name) {
  name.remove_prefix(std::min(name.size(), name.find("://") + 3));
  name = name.substr(0, name.rfind(':'));
  bool in_brackets = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return std::string(in_brackets ? name.substr(1, name.size() - 2) : name);
}

bool is_valid(const transport::RelayRequest& request) {
  sa_family_t family = request.address.ss_family;
  size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
  return bytes != 0 && request.length == bytes && memchr(request.name, 0, sizeof request.name);
}

int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  int r = os::call(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return r < 0 ? -r : error;
}

bool is_connected(int fd) {
  sockaddr_storage peer;
  socklen_t size = sizeof peer;
  return os::call(SYS_getpeername, fd, &peer, &size) == 0;
}

}  // namespace

Link::~Link() {
  stream_.reset();
  if (remote_ >= 0) os::close(remote_);
  os::close(local_);
}

bool Link::advance() {
  if (state_ == State::kRequest) receive_request();
  if (state_ == State::kConnecting) finish_connecting();
  if (state_ == State::kHandshake) shake_hands();
  for (int i = 0; i < kRounds && state_ == State::kOpen; i++) {
    bool sent = move_out();
    bool received = state_ == State::kOpen && move_in();
    if (out_.closed && (in_.closed || local_closed_)) close();
    if (!sent && !received) return false;
  }
  return state_ == State::kOpen;
}

void Link::receive_request() {
  auto* at = reinterpret_cast<std::byte*>(&request_) + request_bytes_;
  ssize_t n = os::recv(local_, at, sizeof request_ - request_bytes_, MSG_DONTWAIT);
  if (n == -EAGAIN || n == -EINTR) return;
  if (n <= 0) return close();
  request_bytes_ += static_cast<size_t>(n);
  if (request_bytes_ < sizeof request_) return;
  if (!is_valid(request_)) return fail(EINVAL, "the relay does not know this kind of address");
  remote_ = transport::open_socket(request_.address.ss_family);
  if (remote_ < 0) return fail(-remote_, "");
  int r = os::call(SYS_connect, remote_, &request_.address, request_.length);
  if (r < 0 && r != -EINPROGRESS) return fail(-r, "");
  state_ = State::kConnecting;
}

void Link::finish_connecting() {
  if (int error = connection_error(remote_); error != 0) return fail(error, "");
  if (!is_connected(remote_)) return;
  stream_ = TlsSocket::connect(*settings_.credentials, remote_,
                               settings_.name.empty() ? host_of(request_.name) : settings_.name);
  if (!stream_) return fail(EINVAL, "its address has no host name that a certificate could have");
  state_ = State::kHandshake;
}

void Link::shake_hands() {
  int r = stream_->handshake();
  if (r == 0) state_ = State::kOpen;
  else if (r != -EAGAIN) fail(-r, stream_->failure());
}

// From the local socket to the server. True: it did something.
bool Link::move_out() {
  if (out_.empty() && !out_.ended) {
    ssize_t n = os::recv(local_, out_.bytes.data(), kRecordBytes, MSG_DONTWAIT);
    if (n == -EAGAIN || n == -EINTR) return false;
    if (n < 0) close();
    if (n < 0) return false;
    out_.begin = 0;
    out_.end = static_cast<size_t>(n);
    out_.ended = n == 0;
  }
  if (!out_.empty()) {
    ssize_t n = stream_->send(&out_.bytes[out_.begin], out_.end - out_.begin);
    if (n > 0) out_.begin += static_cast<size_t>(n);
    else if (n != -EAGAIN) stop_sending();
    return n > 0;
  }
  if (out_.closed || stream_->end() == -EAGAIN) return false;
  out_.closed = true;
  return true;
}

// The server takes no more. What it has sent before may say why, and is received next.
void Link::stop_sending() {
  out_.begin = out_.end;
  out_.ended = out_.closed = true;
}

// From the server to the local socket. True: it did something.
bool Link::move_in() {
  if (in_.empty() && !in_.ended && !fill_in()) return false;
  if (!in_.empty()) {
    ssize_t n = os::send(local_, &in_.bytes[in_.begin], in_.end - in_.begin, MSG_DONTWAIT);
    if (n > 0) in_.begin += static_cast<size_t>(n);
    else if (n != -EAGAIN && n != -EINTR) close();
    return n > 0;
  }
  if (in_.closed) return false;
  os::call(SYS_shutdown, local_, SHUT_WR);
  in_.closed = true;
  return true;
}

// The first data follows the relay's own reply.
bool Link::fill_in() {
  size_t head = answered_ ? 0 : sizeof(transport::RelayReply);
  ssize_t n = stream_->receive(&in_.bytes[head], kRecordBytes);
  if (n == -EAGAIN) return false;
  if (n < 0) fail(static_cast<int>(-n), stream_->failure());
  if (n < 0) return false;
  transport::RelayReply good = {};
  memcpy(in_.bytes.data(), &good, head);
  answered_ = true;
  in_.begin = 0;
  in_.end = head + static_cast<size_t>(n);
  in_.ended = n == 0;
  return true;
}

// The reply fits into the empty buffer of the socket, as its first data. Where it was sent before, the end of the
// connection says enough.
void Link::fail(int error, const char* text) {
  transport::RelayReply reply = {error, {}};
  strncpy(reply.text, text, sizeof reply.text - 1);
  if (!answered_) os::send(local_, &reply, sizeof reply, MSG_DONTWAIT);
  close();
}

void Link::expire(uint64_t now) {
  if (!is_open() && now - since_ > kTimeoutNs) fail(ETIMEDOUT, "");
}

}  // namespace farside::tls
