// Tests of contexts and streams; both ends are in this process, over a pair of sockets.
#include "tls/tls_socket.h"

#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>

#include "tls/test_support.h"
#include "transport/test_support.h"

namespace farside::tls {
namespace {

using transport::Fd;

class Streams : public WithCertificates {
 protected:
  void open(const Files& server, bool verify_clients, const Files& client, const std::string& host = "127.0.0.1") {
    server_.reset();
    client_.reset();
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    client_fd_ = Fd(pair[0]);
    server_fd_ = Fd(pair[1]);
    server_ = TlsSocket::accept(*server_context(server, verify_clients), server_fd_.get());
    client_ = TlsSocket::connect(*client_context(client), client_fd_.get(), host);
    ASSERT_TRUE(server_ && client_);
  }
  void open() { open(certificates->files("server"), false, certificates->files("")); }

  // The results of both handshakes.
  std::pair<int, int> shake_hands() {
    int client = -EAGAIN, server = -EAGAIN;
    for (int round = 0; round < 10; round++) {
      if (client == -EAGAIN) client = client_->handshake();
      if (server == -EAGAIN) server = server_->handshake();
    }
    return {client, server};
  }

  Fd client_fd_, server_fd_;
  std::unique_ptr<TlsSocket> client_, server_;
};

using Both = std::pair<int, int>;

TEST_F(Streams, BytesArriveIntactInBothDirections) {
  open();
  ASSERT_EQ(shake_hands(), Both(0, 0));
  auto data = transport::numbered(5'000'000);
  for (auto [from, to] : {std::pair(client_.get(), server_.get()), std::pair(server_.get(), client_.get())}) {
    std::vector<std::byte> got(data.size());
    size_t sent = 0, received = 0;
    bool refused = false;  // the receiver is slow, so the sockets fill up
    while (received < data.size()) {
      ssize_t n = sent < data.size() ? from->send(data.data() + sent, data.size() - sent) : -EAGAIN;
      if (n > 0) sent += static_cast<size_t>(n);
      if (n > 0) continue;
      ASSERT_EQ(n, -EAGAIN);
      refused |= sent < data.size();
      n = to->receive(got.data() + received, std::min<size_t>(10'000, got.size() - received));
      ASSERT_GT(n, 0);
      received += static_cast<size_t>(n);
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(got, data);
  }
}

TEST_F(Streams, WhatWasDecryptedAndNotReturnedIsReported) {
  open();
  ASSERT_EQ(shake_hands(), Both(0, 0));
  ASSERT_EQ(client_->send("0123456789", 10), 10);
  char got[10];
  ASSERT_EQ(server_->receive(got, 4), 4);
  EXPECT_TRUE(server_->has_received());
  ASSERT_EQ(server_->receive(got + 4, 6), 6);
  EXPECT_FALSE(server_->has_received());
  EXPECT_EQ(memcmp(got, "0123456789", 10), 0);
  EXPECT_EQ(server_->receive(got, 1), -EAGAIN);
}

TEST_F(Streams, OneSideEndsAndTheOtherContinues) {
  open();
  ASSERT_EQ(shake_hands(), Both(0, 0));
  ASSERT_EQ(client_->send("last", 4), 4);
  client_->end();
  char got[4];
  EXPECT_EQ(server_->receive(got, 4), 4);
  EXPECT_EQ(server_->receive(got, 4), 0);
  EXPECT_EQ(server_->send("more", 4), 4);
  EXPECT_EQ(client_->receive(got, 4), 4);
  server_.reset();
  EXPECT_EQ(client_->receive(got, 4), 0);
}

TEST_F(Streams, ACutConnectionIsNotAnEnd) {
  open();
  ASSERT_EQ(shake_hands(), Both(0, 0));
  client_fd_.close();  // before the stream could end the data
  char byte;
  EXPECT_EQ(server_->receive(&byte, 1), -ECONNRESET);
  EXPECT_STREQ(server_->failure(), "the connection was cut");
}

TEST_F(Streams, GarbageIsNotAHandshake) {
  open();
  ASSERT_EQ(send(client_fd_.get(), "GET / HTTP/1.1", 14, 0), 14);
  EXPECT_EQ(server_->handshake(), -EPROTONOSUPPORT);
  EXPECT_STREQ(server_->failure(), "it does not speak TLS");
  open();
  std::vector<char> other(4096, 'x');
  ASSERT_GT(send(server_fd_.get(), other.data(), other.size(), 0), 0);
  EXPECT_EQ(client_->handshake(), -EPROTONOSUPPORT);
  EXPECT_STREQ(client_->failure(), "it does not speak TLS; start it with --tls cert=FILE,key=FILE");
}

TEST_F(Streams, CertificatesOfServersAreVerified) {
  struct Case {
    const char *server, *authority, *host, *message;
  };
  for (Case c : {Case{"expired", "ca", "127.0.0.1", "certificate has expired"},
                 Case{"server", "other", "127.0.0.1", "self-signed certificate in certificate chain"},
                 Case{"elsewhere", "ca", "127.0.0.1", "IP address mismatch"},
                 Case{"elsewhere", "ca", "localhost", "hostname mismatch"},
                 Case{"client", "ca", "127.0.0.1", "unsuitable certificate purpose"}}) {
    open(certificates->files(c.server), false, certificates->files("", c.authority), c.host);
    EXPECT_EQ(shake_hands(), Both(-EPROTO, -EPROTO)) << c.message;
    EXPECT_EQ(client_->failure(),
              "its certificate is not accepted (" + std::string(c.message) + "); check --tls ca and --tls name");
  }
  open(certificates->files("elsewhere"), false, certificates->files(""), "elsewhere.example");
  EXPECT_EQ(shake_hands(), Both(0, 0));
}

TEST_F(Streams, CertificatesOfClientsAreVerifiedWhereWanted) {
  open(certificates->files("server"), true, certificates->files("client"));
  EXPECT_EQ(shake_hands(), Both(0, 0));
  // A client learns of the refusal from the first data that it receives.
  char byte;
  open(certificates->files("server"), true, certificates->files(""));
  EXPECT_EQ(shake_hands(), Both(0, -EPROTO));
  EXPECT_EQ(client_->receive(&byte, 1), -EPROTO);
  EXPECT_STREQ(client_->failure(), "a client certificate is required; give --tls cert=FILE,key=FILE");
  Files stranger = certificates->files("stranger");
  open(certificates->files("server"), true, stranger);
  EXPECT_EQ(shake_hands(), Both(0, -EPROTO));
  EXPECT_EQ(client_->receive(&byte, 1), -EPROTO);
  EXPECT_STREQ(client_->failure(), "it does not accept the certificate of this side (tlsv1 alert unknown ca)");
}

TEST_F(Streams, UnusableFilesAreNamed) {
  std::string garbage = certificates->path("garbage"), missing = certificates->path("missing");
  std::ofstream(garbage) << "not a certificate\n";
  Files good = certificates->files("server");
  struct Case {
    Files files;
    const char* message;
  };
  for (const Case& c : {Case{{good.certificate, "", ""}, "--tls cert and --tls key belong together"},
                        Case{{missing, good.key, ""}, "cannot read the file of --tls cert"},
                        Case{{good.certificate, missing, ""}, "cannot read the file of --tls key"},
                        Case{{good.certificate, good.key, missing}, "cannot read the file of --tls ca"},
                        Case{{garbage, good.key, ""}, "has no usable certificate in PEM form"},
                        Case{{good.certificate, certificates->path("client.key"), ""}, "has no private key of"},
                        Case{{"", "", garbage}, "has no usable certificates in PEM form"}}) {
    auto credentials = Credentials::for_client(c.files);
    ASSERT_FALSE(credentials.ok()) << c.message;
    EXPECT_NE(strstr(credentials.status().text(), c.message), nullptr) << credentials.status().text();
  }
  EXPECT_FALSE(Credentials::for_server({}, false).ok());
}

}  // namespace
}  // namespace farside::tls
