// Servers that violate the protocol. The client must report an error: no crash, no hang, no success with wrong data.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "fixture.h"
#include "frames.h"
#include "remote/connect.h"

namespace farside::testing {
namespace {

// Calls a function for each accepted connection, in a separate thread, and closes the connection afterwards.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(int)> serve) : serve_(std::move(serve)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
    socklen_t length = sizeof address;
    bind(listener_, reinterpret_cast<sockaddr*>(&address), length);
    listen(listener_, 64);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~FakeServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (auto& t : connections_) t.join();
    close(listener_);
  }
  std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

 private:
  void run() {
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0;) {
      connections_.emplace_back([this, fd] {
        serve_(fd);
        close(fd);
      });
    }
  }
  std::function<void(int)> serve_;
  int listener_;
  uint16_t port_;
  std::thread thread_;
  std::vector<std::thread> connections_;
};

bool receive(int fd, wire::FrameHeader* header, Frame* payload) {
  if (recv(fd, header, sizeof *header, MSG_WAITALL) != sizeof *header) return false;
  payload->resize(header->payload_bytes);
  return payload->empty() ||
         recv(fd, payload->data(), payload->size(), MSG_WAITALL) == static_cast<ssize_t>(payload->size());
}
bool receive(int fd, wire::FrameHeader* header) {
  Frame payload;
  return receive(fd, header, &payload);
}
void send_frame(int fd, const Frame& f) { (void)!::send(fd, f.data(), f.size(), MSG_NOSIGNAL); }

bool greet(int fd) {
  wire::FrameHeader header;
  Frame payload;
  wire::Greeting greeting = {};
  if (!receive(fd, &header, &payload) || wire::decode_hello(payload, &greeting.hello) < 0) return false;
  send_frame(fd, frame_of(wire::Op::kHello, header.request, greeting.challenge, wire::kFlagReply));
  if (!receive(fd, &header)) return false;
  wire::HelloReply reply = {};
  reply.region = 1;
  reply.region_bytes = kRegion;
  bool by_token = greeting.hello.mode == wire::HelloMode::kCreate;
  wire::Key key = by_token ? wire::Key{} : wire::key_of_secret(reply.secret);
  wire::mask_secret(key, greeting, &reply);
  wire::Proof proof = wire::server_proof(key, greeting, reply);
  memcpy(reply.proof, proof.proof, sizeof reply.proof);
  send_frame(fd, frame_of(wire::Op::kProve, header.request, reply, wire::kFlagReply));
  return true;
}

TEST(HostileServer, GarbageInsteadOfAGreeting) {
  std::atomic<uint64_t> seed{0};
  FakeServer server([&](int fd) {
    std::mt19937_64 random(++seed);
    Frame f = frame_of(wire::Op::kHello, 1, wire::Challenge{}, wire::kFlagReply);
    if (random() % 2) mutate(&f, &random);
    else
      for (auto& b : f) b = static_cast<std::byte>(random());
    f[0] = std::byte{0};  // so that the magic is never valid
    send_frame(fd, f);
  });
  for (int i = 0; i < 50; i++) {
    auto store = remote::connect_store({server.address().c_str(), "", kRegion});
    ASSERT_FALSE(store.ok());
    EXPECT_STRNE(store.status().text(), "");
  }
}

TEST(HostileServer, OtherVersionsAreReported) {
  FakeServer server([](int fd) {
    Frame f = frame_of(wire::Op::kHello, 1, wire::Challenge{}, wire::kFlagReply);
    f[4] = std::byte{wire::kVersion + 1};
    seal(&f);
    send_frame(fd, f);
    wire::FrameHeader ignored;
    receive(fd, &ignored);
  });
  auto store = remote::connect_store({server.address().c_str(), "", kRegion});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), EPROTONOSUPPORT) << store.status().text();
}

TEST(HostileServer, SilenceTimesOut) {
  FakeServer server([](int fd) {
    char byte;
    while (recv(fd, &byte, 1, 0) > 0) {}
  });
  auto store = remote::connect_store({server.address().c_str(), "", kRegion});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), ETIMEDOUT) << store.status().text();
}

// The server replies to the greeting correctly, and to each request with the result of `answer`.
void expect_read_fails(const std::function<Frame(const wire::FrameHeader&)>& answer, int expected = -EBADMSG) {
  FakeServer server([&](int fd) {
    if (!greet(fd)) return;
    for (wire::FrameHeader header; receive(fd, &header);) send_frame(fd, answer(header));
  });
  auto store = connect(server.address(), "", 0);
  auto channel = open(store.get());
  Bytes out(1000);
  EXPECT_EQ(read(channel.get(), 0, &out), expected);
  if (expected == -EBADMSG) {
    EXPECT_EQ(read(channel.get(), 0, &out), -ECONNRESET);
  }
}

Frame read_reply(uint64_t request, size_t bytes) {
  return frame(wire::Op::kRead, request, Frame(bytes), wire::kFlagReply);
}

TEST(HostileServer, WrongReplies) {
  expect_read_fails([](auto& h) { return read_reply(h.request, 999); });
  expect_read_fails([](auto& h) { return read_reply(h.request, 1001); });
  expect_read_fails([](auto& h) { return read_reply(h.request, 0); });
  expect_read_fails([](auto& h) { return read_reply(h.request + 1, 1000); });
  expect_read_fails([](auto& h) { return read_reply(h.request + 16, 1000); });
  expect_read_fails([](auto&) { return read_reply(0, 1000); });
  expect_read_fails([](auto& h) { return frame(wire::Op::kWrite, h.request, {}, wire::kFlagReply); });
  expect_read_fails([](auto& h) { return frame(wire::Op::kRead, h.request, Frame(1000), 0); });
  expect_read_fails([](auto& h) { return frame(wire::Op::kError, h.request, Frame(10), wire::kFlagReply); });
  expect_read_fails([](auto& h) {
    Frame f = read_reply(h.request, 1000);
    f[500] = std::byte{1};  // the checksum is wrong now
    return f;
  });
  expect_read_fails([](auto& h) {
    Frame f = read_reply(h.request, 1000);
    f[19] = std::byte{0xff};  // a huge length
    return f;
  });
}

TEST(HostileServer, ErrorRepliesAreReturnedAndNeverSuccess) {
  auto with_code = [](uint32_t code) {
    return [code](const wire::FrameHeader& h) {
      wire::ErrorReply error = wire::make_error(1, "because");
      error.code = code;
      return frame_of(wire::Op::kError, h.request, error, wire::kFlagReply);
    };
  };
  expect_read_fails(with_code(ENOSPC), -ENOSPC);
  for (uint32_t code : {0u, 4096u, 0xffffffffu, 0x80000000u}) {
    FakeServer server([&](int fd) {
      if (!greet(fd)) return;
      for (wire::FrameHeader header; receive(fd, &header);) send_frame(fd, with_code(code)(header));
    });
    auto store = connect(server.address(), "", 0);
    auto channel = open(store.get());
    Bytes out(1000);
    EXPECT_LT(read(channel.get(), 0, &out), 0);
  }
}

TEST(HostileServer, ConnectionsCutAnywhere) {
  for (size_t cut : {0, 1, 23, 24, 25, 500, 1023}) {
    FakeServer server([cut](int fd) {
      wire::FrameHeader header;
      if (!greet(fd) || !receive(fd, &header)) return;
      Frame f = read_reply(header.request, 1000);
      f.resize(cut);
      send_frame(fd, f);
    });
    auto store = connect(server.address(), "", 0, 1, {.limit_ns = 200'000'000});
    auto channel = open(store.get());
    Bytes out(1000);
    EXPECT_EQ(read(channel.get(), 0, &out), -ECONNRESET);  // also after retries
  }
}

// Mutated replies to several requests in flight: a request may succeed only with its correct data.
TEST(HostileServer, MutatedReplies) {
  std::atomic<uint64_t> seed{0};
  FakeServer server([&](int fd) {
    std::mt19937_64 random(++seed);
    if (!greet(fd)) return;
    for (wire::FrameHeader header; receive(fd, &header);) {
      Frame f = read_reply(header.request, 1000);
      if (random() % 3 == 0) {
        f[random() % f.size()] ^= static_cast<std::byte>(1 + random() % 255);
        if (random() % 4 == 0) f.resize(random() % f.size());
      }
      send_frame(fd, f);
      if (f.size() < 1024) return;
    }
  });
  auto store = connect(server.address(), "", 0);
  for (int i = 0; i < 60; i++) {
    auto channel = open(store.get());
    Bytes out(8000, 0xee);
    Token tokens[8] = {};
    for (size_t t = 0; t < 8; t++) {
      ByteRange s = {0, 1000, &out[t * 1000]};
      if (channel->submit_read({&s, 1}, &tokens[t]) < 0) tokens[t] = 0;
    }
    for (size_t t = 0; t < 8; t++) {
      if (!tokens[t]) continue;
      int r = channel->wait(tokens[t], kTestTimeoutNs);
      ASSERT_NE(r, -ETIMEDOUT);
      if (r == 0) {
        EXPECT_EQ(Bytes(&out[t * 1000], &out[t * 1000] + 1000), Bytes(1000));
      }
    }
  }
}

}  // namespace
}  // namespace farside::testing
