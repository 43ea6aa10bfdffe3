// Clients that violate TLS, or that are silent at its port. The server must reject them, and serve a well-behaved
// client meanwhile.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <fstream>

#include "base/bits.h"
#include "base/size.h"
#include "fixture.h"
#include "frames.h"
#include "tls/test_support.h"
#include "tls/tls_socket.h"
#include "transport/test_support.h"

namespace farside::testing {
namespace {

using transport::Fd;

class HostileTls : public tls::WithCertificates {
 protected:
  static server::ServerConfig config() {
    server::ServerConfig config = default_config();
    config.tls = tls::server_context(certificates->files("server"));
    return config;
  }

  Fd connect() {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {AF_INET, htons(server_.port()), {htonl(INADDR_LOOPBACK)}, {}};
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    timeval timeout = {15, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return fd;
  }
  std::unique_ptr<tls::TlsSocket> stream_over(const Fd& fd) {
    return tls::TlsSocket::connect(*client_, fd.get(), "127.0.0.1");
  }
  // What a client sends first.
  Frame client_hello() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    Fd near(pair[0]), far(pair[1]);
    EXPECT_EQ(stream_over(near)->handshake(), -EAGAIN);
    Frame bytes(4096);
    ssize_t n = recv(far.get(), bytes.data(), bytes.size(), 0);
    EXPECT_GT(n, 0);
    bytes.resize(static_cast<size_t>(n));
    return bytes;
  }
  void send(const Fd& fd, const Frame& bytes) { (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  bool ended(const Fd& fd) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd.get(), bytes, sizeof bytes, 0)) > 0) {}
    return n == 0 || errno == ECONNRESET;
  }
  // A client that greets, and gets a region.
  void expect_service() {
    Fd fd = connect();
    auto stream = stream_over(fd);
    ASSERT_EQ(stream->handshake(), 0) << stream->failure();
    Frame hello = hello_frame(kRegion);
    ASSERT_EQ(stream->send(hello.data(), hello.size()), static_cast<ssize_t>(hello.size()));
    wire::FrameHeader header;
    ASSERT_EQ(stream->receive(&header, sizeof header), static_cast<ssize_t>(sizeof header)) << stream->failure();
    EXPECT_EQ(static_cast<wire::Op>(header.op), wire::Op::kHello);
  }

  std::shared_ptr<const tls::Credentials> client_ = tls::client_context(certificates->files(""));
  TestServer server_{config()};
};

// Memory of this process, which the server shares.
uint64_t private_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size, resident, shared;
  file >> size >> resident >> shared;
  return (resident - shared) * kPageSize;
}

// Silent from the beginning, within the handshake, and after it. They delay others, but do not keep them out.
TEST_F(HostileTls, SilentConnectionsAreBoundedAndClosed) {
  Fd shaken = connect();
  auto stream = stream_over(shaken);
  ASSERT_EQ(stream->handshake(), 0);
  Frame hello = client_hello(), part(hello.begin(), hello.begin() + 50);
  uint64_t before = private_bytes();
  std::vector<Fd> clients;
  for (int i = 0; i < 700; i++) {
    clients.push_back(connect());
    if (i % 3 == 1) send(clients.back(), part);
    if (i % 3 == 2) send(clients.back(), hello);
  }
  EXPECT_TRUE(server_.eventually([](auto s) { return s.clients >= 500; }));
  EXPECT_LE(server_->stats().clients, 520u);
  if (!kSanitized) {  // sanitizers keep freed memory for a while
    EXPECT_LT(private_bytes() - before, uint64_t{40} * kMiB);
  }
  expect_service();  // the oldest silent ones are closed for it
  char byte;
  EXPECT_EQ(stream->receive(&byte, 1), 0);
  for (int i = 0; i < 3; i++) EXPECT_TRUE(ended(clients[static_cast<size_t>(i)]));
}

TEST_F(HostileTls, MutatedHandshakesEndTheConnection) {
  std::mt19937_64 random(11);
  Frame hello = client_hello();
  for (int i = 0; i < 300; i++) {
    Frame bytes = hello;
    for (uint64_t n = random() % 4; n < 4; n++) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (i % 3 == 0) bytes.resize(random() % bytes.size());
    Fd fd = connect();
    send(fd, bytes);
    shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(ended(fd));
  }
  expect_service();
  EXPECT_TRUE(server_.eventually([](auto s) { return s.clients == 0; }));
}

TEST_F(HostileTls, GarbageAfterTheHandshakeEndsTheConnection) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 20; i++) {
    Fd fd = connect();
    auto stream = stream_over(fd);
    ASSERT_EQ(stream->handshake(), 0);
    Frame garbage(1 + random() % 5000);
    for (auto& b : garbage) b = static_cast<std::byte>(random());
    garbage[0] = std::byte{23};  // a record of data
    if (i % 2) send(fd, garbage);
    else EXPECT_GT(stream->send(garbage.data(), garbage.size()), 0);
    shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(ended(fd));
  }
  EXPECT_GT(server_->stats().bad_frames, 0u);
  expect_service();
}

}  // namespace
}  // namespace farside::testing
