// Support for tests of transports: frames, and the server's end of a connection, which the test drives itself.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/os.h"
#include "transport/transport.h"
#include "wire/auth.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::transport {

inline constexpr uint64_t kPatience = 20'000'000'000;  // no passing test waits that long; a hang fails here

using FrameBytes = std::vector<std::byte>;

template <typename T>
FrameBytes bytes_of_value(const T& value) {
  auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

inline FrameBytes reply_frame(wire::Op op, uint64_t request, const FrameBytes& payload = {}) {
  auto header = wire::make_header(op, wire::kFlagReply, request, static_cast<uint32_t>(payload.size()));
  header.crc = wire::crc32c(wire::header_crc(header), payload.data(), payload.size());
  FrameBytes out = bytes_of_value(header);
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

inline FrameBytes error_frame(uint64_t request, int code, const char* text) {
  return reply_frame(wire::Op::kError, request, bytes_of_value(wire::make_error(code, text)));
}

inline FrameBytes numbered(size_t bytes, unsigned seed = 0) {
  FrameBytes out(bytes);
  for (size_t i = 0; i < bytes; i++) out[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return out;
}

inline bool is_open(int fd) { return os::fcntl(fd, F_GETFD, 0) >= 0; }

// Owns a descriptor and closes it.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    close();
    fd_ = other.release();
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void close() {
    if (fd_ >= 0) os::close(release());
  }

 private:
  int fd_;
};

// The server's end: a received request.
struct Request {
  wire::FrameHeader header = {};
  FrameBytes payload;
  Fd passed;  // with the header
  wire::Op op() const { return static_cast<wire::Op>(header.op); }
};

// False: the other end has closed the connection, or the test has.
inline bool try_send(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t n = os::send(fd, bytes.data(), bytes.size(), 0);
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

inline void send_bytes(int fd, std::span<const std::byte> bytes) { ASSERT_TRUE(try_send(fd, bytes)); }

inline bool receive_bytes(int fd, void* to, size_t bytes, std::span<int> passed = {}) {
  for (auto* at = static_cast<std::byte*>(to); bytes > 0;) {
    pollfd ready = {fd, POLLIN, 0};
    os::poll(&ready, 1, -1);
    ssize_t n = os::recv_with_fds(fd, at, bytes, passed);
    if (n == -EAGAIN) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// The next request, checked. False at the connection's end.
inline bool receive_request(int fd, Request* out) {
  int passed = -1;
  if (!receive_bytes(fd, &out->header, sizeof out->header, {&passed, 1})) return false;
  out->passed = Fd(passed);
  EXPECT_EQ(wire::check_request_header(out->header), 0);
  out->payload.resize(out->header.payload_bytes);
  if (!receive_bytes(fd, out->payload.data(), out->payload.size())) return false;
  uint32_t crc = wire::crc32c(wire::header_crc(out->header), out->payload.data(), out->payload.size());
  EXPECT_EQ(crc, out->header.crc);
  return true;
}

// The key of a client without a token, or of a region whose secret is zero.
inline wire::Key key_for(const wire::HelloRequest& hello) {
  constexpr uint8_t kZero[wire::kSecretBytes] = {};
  bool by_token = hello.mode == wire::HelloMode::kCreate || hello.mode == wire::HelloMode::kObserve;
  return by_token ? wire::Key{} : wire::key_of_secret(kZero);
}

// The reply with the server's proof.
inline wire::HelloReply proven(const wire::Greeting& greeting, wire::HelloReply reply) {
  wire::Key key = key_for(greeting.hello);
  wire::mask_secret(key, greeting, &reply);
  wire::Proof proof = wire::server_proof(key, greeting, reply);
  memcpy(reply.proof, proof.proof, sizeof reply.proof);
  return reply;
}

// Receives a greeting and the client's proof, which must be right. False at the connection's end.
inline bool receive_greeting(int fd, wire::Greeting* greeting) {
  Request r;
  if (!receive_request(fd, &r) || r.op() != wire::Op::kHello) return false;
  EXPECT_EQ(wire::decode_hello(r.payload, &greeting->hello), 0);
  greeting->challenge = {{1, 2, 3}};
  if (!try_send(fd, reply_frame(wire::Op::kHello, r.header.request, bytes_of_value(greeting->challenge)))) return false;
  if (!receive_request(fd, &r) || r.op() != wire::Op::kProve) return false;
  EXPECT_EQ(r.payload, bytes_of_value(wire::client_proof(key_for(greeting->hello), *greeting)));
  return true;
}

}  // namespace farside::transport
