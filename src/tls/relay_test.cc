// Tests of the relay: clients connect to its socket, and the servers are TLS streams that the tests drive.
#include "tls/relay.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <future>
#include <thread>

#include "base/clock.h"
#include "tls/test_support.h"
#include "tls/tls_socket.h"
#include "transport/dial.h"
#include "transport/relay_protocol.h"
#include "transport/test_support.h"

namespace farside::tls {
namespace {

using transport::Endpoint;
using transport::Fd;
using transport::FrameBytes;
using transport::RelayReply;
using transport::RelayRequest;

// The server's end of a connection that a relay has made, used with blocking calls.
class Peer {
 public:
  Peer(Fd fd, const Credentials& credentials)
      : fd_(std::move(fd)), stream_(TlsSocket::accept(credentials, fd_.get())) {}
  int handshake() { return stream_->handshake(); }
  bool receive(void* to, size_t bytes) {
    for (auto* at = static_cast<std::byte*>(to); bytes > 0;) {
      ssize_t n = stream_->receive(at, bytes);
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<size_t>(n);
    }
    return true;
  }
  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      ssize_t n = stream_->send(bytes.data(), bytes.size());
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  ssize_t receive_some(void* to, size_t bytes) { return stream_->receive(to, bytes); }
  void end() { stream_->end(); }

 private:
  Fd fd_;
  std::unique_ptr<TlsSocket> stream_;
};

class Relays : public WithCertificates {
 protected:
  Relays() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    server_.length = sizeof address;
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&server_.address), &server_.length), 0);
    strcpy(server_.name, "tls://127.0.0.1:1");
  }

  void start(const Files& files, const std::string& name = "") {
    strcpy(server_.relay, certificates->path("relay").c_str());
    unlink(server_.relay);
    Endpoint place;
    ASSERT_EQ(transport::set_unix_path(&place, server_.relay, strlen(server_.relay)), 0);
    int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&place.address), place.length), 0);
    ASSERT_EQ(::listen(fd, 64), 0);
    auto relay = Relay::start(fd, {client_context(files), name});
    ASSERT_TRUE(relay.ok()) << relay.status().text();
    relay_ = std::move(*relay);
  }
  void start() { start(certificates->files("")); }

  // A blocking connection to the relay that has named the server.
  Fd connect() {
    Fd fd(transport::dial(server_, now_ns() + transport::kPatience));
    EXPECT_GE(fd.get(), 0);
    os::fcntl(fd.get(), F_SETFL, 0);
    RelayRequest request = {server_.address, server_.length, {}};
    memcpy(request.name, server_.name, sizeof request.name);
    transport::send_bytes(fd.get(), std::as_bytes(std::span(&request, 1)));
    return fd;
  }
  Peer accept(const std::string& certificate = "server", bool verify_clients = false) {
    credentials_ = server_context(certificates->files(certificate), verify_clients);
    return Peer(Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), *credentials_);
  }
  RelayReply reply_to(const Fd& client) {
    RelayReply reply = {-1, {}};
    EXPECT_TRUE(transport::receive_bytes(client.get(), &reply, sizeof reply));
    return reply;
  }
  bool ends(const Fd& client) {
    char byte;
    return os::recv(client.get(), &byte, 1, 0) <= 0;
  }
  void expect_connections(size_t count) {
    for (int i = 0; i < 5000 && relay_->connections() != count; i++) os::nanosleep_ns(1'000'000);
    EXPECT_EQ(relay_->connections(), count);
  }

  Fd listener_;
  Endpoint server_;
  std::shared_ptr<const Credentials> credentials_;
  std::unique_ptr<Relay> relay_;
};

TEST_F(Relays, LargeStreamsArriveIntactInBothDirections) {
  start();
  Fd client = connect();
  Peer peer = accept();
  FrameBytes there = transport::numbered(8'000'000, 1), back = transport::numbered(8'000'000, 2);
  auto sent = std::async([&] { transport::send_bytes(client.get(), there); });
  FrameBytes got(there.size());
  ASSERT_TRUE(peer.receive(got.data(), got.size()));
  EXPECT_EQ(got, there);
  auto answered = std::async([&] { return peer.send(back); });
  EXPECT_EQ(reply_to(client).error, 0);
  ASSERT_TRUE(transport::receive_bytes(client.get(), got.data(), got.size()));
  EXPECT_EQ(got, back);
  EXPECT_TRUE(answered.get());
}

TEST_F(Relays, EachSideMayEndItsDataFirst) {
  start();
  FrameBytes data = transport::numbered(1'000'000), got(data.size());
  char byte;
  {
    Fd client = connect();
    Peer peer = accept();
    transport::send_bytes(client.get(), std::span(data).first(1000));
    ASSERT_EQ(shutdown(client.get(), SHUT_WR), 0);
    ASSERT_TRUE(peer.receive(got.data(), 1000));
    EXPECT_EQ(peer.receive_some(&byte, 1), 0);
    auto answered = std::async([&] { return peer.send(data); });
    EXPECT_EQ(reply_to(client).error, 0);
    EXPECT_TRUE(transport::receive_bytes(client.get(), got.data(), got.size()));
    EXPECT_EQ(got, data);
  }
  Fd client = connect();
  Peer peer = accept();
  ASSERT_EQ(peer.handshake(), 0);
  ASSERT_TRUE(peer.send(std::span(data).first(1000)));
  peer.end();
  EXPECT_EQ(reply_to(client).error, 0);
  EXPECT_TRUE(transport::receive_bytes(client.get(), got.data(), 1000));
  EXPECT_TRUE(ends(client));
  auto sent = std::async([&] { transport::send_bytes(client.get(), data); });
  ASSERT_TRUE(peer.receive(got.data(), got.size()));
  EXPECT_EQ(got, data);
}

// Its data waits in the sockets' buffers; other connections are served meanwhile.
TEST_F(Relays, AClientThatDoesNotReadDelaysNoOther) {
  start();
  FrameBytes data = transport::numbered(20'000'000), got(data.size());
  Fd slow = connect();
  Peer busy = accept();
  auto sent = std::async([&] { return busy.send(data); });
  for (int i = 0; i < 20; i++) {
    Fd client = connect();
    Peer peer = accept();
    ASSERT_EQ(peer.handshake(), 0);
    ASSERT_TRUE(peer.send(std::span(data).first(1000)));
    EXPECT_EQ(reply_to(client).error, 0);
    EXPECT_TRUE(transport::receive_bytes(client.get(), got.data(), 1000));
  }
  EXPECT_EQ(sent.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(reply_to(slow).error, 0);
  EXPECT_TRUE(transport::receive_bytes(slow.get(), got.data(), got.size()));
  EXPECT_EQ(got, data);
}

TEST_F(Relays, TheEndOfAClientReachesTheServer) {
  start();
  Fd client = connect();
  Peer peer = accept();
  ASSERT_EQ(peer.handshake(), 0);
  transport::send_bytes(client.get(), transport::numbered(10));
  client.close();
  char got[10];
  ASSERT_TRUE(peer.receive(got, sizeof got));
  EXPECT_EQ(peer.receive_some(got, 1), 0);  // an end, not a cut: the server frees its memory at once
  expect_connections(0);
}

TEST_F(Relays, TheDeathOfAServerReachesTheClient) {
  start();
  Fd client = connect();
  {
    Peer peer = accept();
    ASSERT_EQ(peer.handshake(), 0);
    ASSERT_TRUE(peer.send(transport::numbered(10)));
    EXPECT_EQ(reply_to(client).error, 0);
  }
  FrameBytes got(10);
  EXPECT_TRUE(transport::receive_bytes(client.get(), got.data(), got.size()));
  EXPECT_TRUE(ends(client));
  client.close();
  expect_connections(0);
}

TEST_F(Relays, FailuresAreReportedToTheClient) {
  struct Case {
    const char *certificate, *authority, *name, *message;
  };
  for (Case c : {Case{"expired", "ca", "", "certificate has expired"}, Case{"server", "other", "", "self-signed"},
                 Case{"elsewhere", "ca", "", "IP address mismatch"},
                 Case{"server", "ca", "elsewhere.example", "hostname mismatch"}}) {
    start(certificates->files("", c.authority), c.name);
    Fd client = connect();
    Peer peer = accept(c.certificate);
    EXPECT_NE(peer.handshake(), 0);
    RelayReply reply = reply_to(client);
    EXPECT_EQ(reply.error, EPROTO);
    EXPECT_NE(strstr(reply.text, c.message), nullptr) << reply.text;
    EXPECT_TRUE(ends(client));
    expect_connections(0);
  }
  start(certificates->files(""), "elsewhere.example");
  Fd client = connect();
  Peer peer = accept("elsewhere");
  EXPECT_EQ(peer.handshake(), 0);
}

TEST_F(Relays, AMissingClientCertificateIsReported) {
  start();
  Fd client = connect();
  EXPECT_NE(accept("server", true).handshake(), 0);
  RelayReply reply = reply_to(client);
  EXPECT_EQ(reply.error, EPROTO);
  EXPECT_STREQ(reply.text, "a client certificate is required; give --tls cert=FILE,key=FILE");
  start(certificates->files("client"));
  Fd known = connect();
  EXPECT_EQ(accept("server", true).handshake(), 0);
}

TEST_F(Relays, AServerThatIsNotThereIsRefused) {
  start();
  listener_.close();
  RelayReply reply = reply_to(connect());
  EXPECT_EQ(reply.error, ECONNREFUSED);
  EXPECT_STREQ(reply.text, "");
}

TEST_F(Relays, AServerWithoutTlsIsReported) {
  start();
  Fd client = connect();
  Fd plain(::accept(listener_.get(), nullptr, nullptr));
  transport::send_bytes(plain.get(), transport::numbered(1000));
  EXPECT_STREQ(reply_to(client).text, "it does not speak TLS; start it with --tls cert=FILE,key=FILE");
}

TEST_F(Relays, ImpossibleRequestsAreRefused) {
  start();
  RelayRequest local = {{}, 2, "tls://x:1"}, longer = {server_.address, 200, "tls://x:1"}, endless = {};
  local.address.ss_family = AF_UNIX;
  endless.address = server_.address;
  endless.length = server_.length;
  memset(endless.name, 'x', sizeof endless.name);
  for (const RelayRequest& request : {local, longer, endless}) {
    Fd fd(transport::dial(server_, now_ns() + transport::kPatience));
    os::fcntl(fd.get(), F_SETFL, 0);
    transport::send_bytes(fd.get(), std::as_bytes(std::span(&request, 1)));
    EXPECT_EQ(reply_to(fd).error, EINVAL);
  }
  expect_connections(0);
}

// A server that accepts connections and is silent, and a client that names none.
TEST_F(Relays, ConnectionsThatAreNotOpenedEnd) {
  start();
  Fd waiting = connect();
  Fd silent(transport::dial(server_, now_ns() + transport::kPatience));
  os::fcntl(silent.get(), F_SETFL, 0);
  EXPECT_EQ(reply_to(waiting).error, ETIMEDOUT);
  EXPECT_EQ(reply_to(silent).error, ETIMEDOUT);
  expect_connections(0);
}

}  // namespace
}  // namespace farside::tls
