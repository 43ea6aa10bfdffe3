// A client that sends what a test wants, and a server with a well-behaved client beside it.
#pragma once
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <memory>
#include <string>
#include <utility>

#include "fixture.h"
#include "frames.h"

namespace farside::testing {

class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
    connect_to(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  explicit RawClient(const std::string& unix_path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {AF_UNIX, {}};
    strcpy(address.sun_path, unix_path.c_str());
    connect_to(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), greeting_(other.greeting_) {}
  ~RawClient() {
    if (fd_ >= 0) close(fd_);
  }

  // Errors are ignored: the server may have closed the connection.
  void send(const Frame& bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void send_passing(const Frame& bytes, int fd) { (void)!os::send_with_fds(fd_, bytes.data(), bytes.size(), {&fd, 1}); }
  void end() { shutdown(fd_, SHUT_WR); }

  // The op of the next reply and 0 or the error code in *error; or kHello and -1 if the connection ended.
  wire::Op reply(int* error) {
    wire::FrameHeader header;
    *error = -1;
    if (recv(fd_, &header, sizeof header, MSG_WAITALL) != sizeof header) return wire::Op::kHello;
    Frame payload(header.payload_bytes);
    if (!payload.empty() && recv(fd_, payload.data(), payload.size(), MSG_WAITALL) < 0) return wire::Op::kHello;
    *error = 0;
    if (header.op == static_cast<uint8_t>(wire::Op::kError)) memcpy(error, payload.data(), sizeof *error);
    return static_cast<wire::Op>(header.op);
  }
  template <typename T>
  bool receive(T* payload) {
    wire::FrameHeader header;
    return recv(fd_, &header, sizeof header, MSG_WAITALL) == sizeof header && header.payload_bytes == sizeof *payload &&
           recv(fd_, payload, sizeof *payload, MSG_WAITALL) == sizeof *payload;
  }
  // Sends the greeting and, when it is challenged, the proof.
  void greet(const wire::HelloRequest& hello, const wire::Key& key) {
    greeting_.hello = hello;
    send(frame_of(wire::Op::kHello, 1, hello));
    if (receive(&greeting_.challenge)) send(frame_of(wire::Op::kProve, 1, wire::client_proof(key, greeting_)));
  }
  bool has_reply() const {
    pollfd fd = {fd_, POLLIN, 0};
    return poll(&fd, 1, 0) > 0;
  }
  const wire::Greeting& greeting() const { return greeting_; }
  int error_reply() {
    int error;
    wire::Op op = reply(&error);
    return op == wire::Op::kError ? error : -1;
  }
  bool ended() {
    char byte;
    for (;;) {
      ssize_t n = recv(fd_, &byte, 1, 0);
      if (n <= 0) return n == 0 || errno == ECONNRESET;
    }
  }

 private:
  void connect_to(const sockaddr* address, socklen_t length) {
    if (::connect(fd_, address, length) < 0) throw std::runtime_error("connect");
    timeval timeout = {10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }

  int fd_;
  wire::Greeting greeting_ = {};
};

inline constexpr char kServerSecret[] = "of the servers of this pool";
inline constexpr char kOperatorSecret[] = "of the operators of this pool";

class HostileClient : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = connect(server_.tcp(), token());
    channel_ = open(store_.get());
    ASSERT_EQ(write(channel_.get(), 0, honest_), 0);
  }
  void TearDown() override { EXPECT_EQ(read(channel_.get(), 0, honest_.size()), honest_); }

  const std::string& token() const { return server_.config().token; }
  RawClient raw() { return RawClient(server_.port()); }
  wire::Key key() const { return wire::key_of_token(token()); }
  static wire::HelloRequest new_region() {
    wire::HelloRequest hello = hello_of(wire::HelloMode::kCreate);
    hello.region_bytes = kRegion;
    return hello;
  }
  RawClient greeted() {
    RawClient client(server_.port());
    client.greet(new_region(), key());
    int error;
    EXPECT_EQ(client.reply(&error), wire::Op::kProve);
    EXPECT_EQ(error, 0);
    return client;
  }

  TestServer server_;
  std::unique_ptr<remote::RemoteStore> store_;
  std::unique_ptr<Channel> channel_;
  const Bytes honest_ = pattern(100000, 1);
};

}  // namespace farside::testing
