// Clients that violate the protocol. The server must reject them, and serve a well-behaved client meanwhile.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>

#include "base/bits.h"
#include "base/clock.h"
#include "fixture.h"
#include "frames.h"

namespace farside::testing {
namespace {

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
  void send_passing(const Frame& bytes, int fd) { (void)!os::send_with_fd(fd_, bytes.data(), bytes.size(), fd); }
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

constexpr char kServerSecret[] = "of the servers of this pool";

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

TEST_F(HostileClient, GarbageEndsTheConnection) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; i++) {
    Frame garbage(1 + random() % 5000);
    for (auto& b : garbage) b = static_cast<std::byte>(random());
    RawClient client = raw();
    client.send(garbage);
    client.end();
    EXPECT_TRUE(client.ended());
  }
  EXPECT_GT(server_->stats().bad_frames, 0u);
}

TEST_F(HostileClient, OtherVersionsAreRejected) {
  Frame f = hello_frame(kRegion);
  f[4] = std::byte{wire::kVersion + 1};
  seal(&f);
  RawClient client = raw();
  client.send(f);
  EXPECT_EQ(client.error_reply(), EPROTONOSUPPORT);
  EXPECT_TRUE(client.ended());
}

TEST_F(HostileClient, TheGreetingIsFirstAndOnlyOnce) {
  for (auto& f :
       {list_frame(wire::Op::kRead, 1, {{0, 10}}), frame(wire::Op::kPing, 1, {}), frame(wire::Op::kStats, 1, {})}) {
    RawClient client = raw();
    client.send(f);
    EXPECT_EQ(client.error_reply(), EBADMSG);
    EXPECT_TRUE(client.ended());
  }
  RawClient client = greeted(), prover = greeted();
  client.send(hello_frame(kRegion));
  EXPECT_EQ(client.error_reply(), EBADMSG);
  EXPECT_TRUE(client.ended());
  prover.send(frame_of(wire::Op::kProve, 1, wire::Proof{}));
  EXPECT_EQ(prover.error_reply(), EBADMSG);
  EXPECT_TRUE(prover.ended());
}

TEST_F(HostileClient, NothingButAProofFollowsTheGreeting) {
  for (auto& f : {hello_frame(kRegion), frame(wire::Op::kStats, 1, {}), frame(wire::Op::kPing, 1, {}),
                  frame(wire::Op::kProve, 1, {}), frame_of(wire::Op::kRegister, 1, wire::ServerReport{})}) {
    RawClient client = raw();
    client.send(hello_frame(kRegion));
    wire::Challenge challenge;
    ASSERT_TRUE(client.receive(&challenge));
    client.send(f);
    EXPECT_EQ(client.error_reply(), EBADMSG);
    EXPECT_TRUE(client.ended());
  }
}

TEST_F(HostileClient, AProofOfAnotherConnectionIsRefused) {
  RawClient first = greeted(), second = raw();
  second.send(frame_of(wire::Op::kHello, 1, first.greeting().hello));
  wire::Challenge challenge;
  ASSERT_TRUE(second.receive(&challenge));
  second.send(frame_of(wire::Op::kProve, 1, wire::client_proof(key(), first.greeting())));
  EXPECT_EQ(second.error_reply(), EACCES);
  EXPECT_TRUE(second.ended());
  EXPECT_EQ(server_->stats().refused_tokens, 1u);
}

// What a listener on the network sees of a client that makes a region and attaches to it.
TEST_F(HostileClient, NoSecretIsSent) {
  RawClient client = raw();
  client.greet(new_region(), key());
  wire::HelloReply reply, clear;
  ASSERT_TRUE(client.receive(&reply));
  clear = reply;
  wire::mask_secret(key(), client.greeting(), &clear);
  EXPECT_NE(memcmp(reply.secret, clear.secret, sizeof clear.secret), 0);
  wire::HelloRequest attach = hello_of(wire::HelloMode::kAttach);
  attach.region = reply.region;
  RawClient guest = raw(), thief = raw();
  guest.greet(attach, wire::key_of_secret(clear.secret));
  int error;
  EXPECT_EQ(guest.reply(&error), wire::Op::kProve);
  thief.greet(attach, wire::key_of_secret(reply.secret));
  EXPECT_EQ(thief.error_reply(), ENOENT);
}

TEST_F(HostileClient, ImpossibleRequestsGetErrorRepliesAndTheConnectionContinues) {
  RawClient client = greeted();
  auto refused = [&](const Frame& f, int code) {
    client.send(f);
    EXPECT_EQ(client.error_reply(), code);
  };
  refused(list_frame(wire::Op::kRead, 2, {{kRegion, 1}}), ERANGE);
  refused(list_frame(wire::Op::kRead, 2, {{~0ull - 5, 10}}), ERANGE);
  refused(list_frame(wire::Op::kRead, 2, {{0, 1 << 20}, {0, 1}}), E2BIG);
  refused(list_frame(wire::Op::kRead, 2, {{0, 0}}), EINVAL);
  refused(list_frame(wire::Op::kWrite, 2, {{0, 5}}, 4), EBADMSG);
  refused(list_frame(wire::Op::kWrite, 2, {{0, 5}}, 5), ENOSPC);
  refused(frame_of(wire::Op::kGrow, 2, wire::ReserveRequest{kSlab + 1, 1}), EINVAL);
  refused(frame_of(wire::Op::kGrow, 2, wire::ReserveRequest{~0ull / kSlab * kSlab, 1}), EINVAL);
  refused(frame(wire::Op::kGrow, 2, {}), EBADMSG);
  client.send(frame(wire::Op::kPing, 3, {}));
  int error;
  EXPECT_EQ(client.reply(&error), wire::Op::kPing);
}

// Foreign code writes to its client's connection: decision 47.
TEST(HostileCalls, AConnectionForCallsIsForNothingElse) {
  server::ServerConfig config = default_config();
  config.calls.host_program = FARSIDE_OFFLOAD_HOST;
  TestServer server(config);
  RawClient client(server.port());
  wire::HelloRequest hello = hello_of(wire::HelloMode::kCreate);
  hello.region_bytes = kRegion;
  client.greet(hello, wire::key_of_token(config.token));
  int error;
  ASSERT_EQ(client.reply(&error), wire::Op::kProve);
  client.send(list_frame(wire::Op::kRead, 2, {{0, 1}}));
  ASSERT_EQ(client.reply(&error), wire::Op::kRead);
  client.send(frame_of(wire::Op::kCallOpen, 3, wire::CallOpen{0, 0}));
  ASSERT_EQ(client.reply(&error), wire::Op::kCallOpen);
  for (const Frame& f : {list_frame(wire::Op::kRead, 4, {{0, 1}}), list_frame(wire::Op::kDiscard, 4, {{0, 1}}),
                         frame_of(wire::Op::kGrow, 4, wire::ReserveRequest{0, 1}), frame(wire::Op::kStats, 4, {}),
                         frame(wire::Op::kRevoke, 4, {})}) {
    client.send(f);
    EXPECT_EQ(client.error_reply(), EPERM);
  }
  client.send(frame(wire::Op::kPing, 5, {}));
  EXPECT_EQ(client.reply(&error), wire::Op::kPing);
}

TEST_F(HostileClient, RegionsOfOtherClientsAreNotAccessible) {
  RawClient client = raw();
  wire::HelloRequest hello = hello_of(wire::HelloMode::kAttach);
  hello.region = 1;  // of the well-behaved client
  client.greet(hello, key());
  EXPECT_EQ(client.error_reply(), ENOENT);
  hello.mode = wire::HelloMode::kSnapshot;
  RawClient other = raw();
  other.greet(hello, key());
  EXPECT_EQ(other.error_reply(), ENOENT);
}

// Requests of an old connection of a channel are not executed after the greeting of a newer one.
TEST_F(HostileClient, AReplacedConnectionIsExcluded) {
  RawClient owner = raw();
  owner.greet(new_region(), key());
  wire::HelloReply region;
  ASSERT_TRUE(owner.receive(&region));
  wire::mask_secret(key(), owner.greeting(), &region);
  wire::HelloRequest hello = hello_of(wire::HelloMode::kAttach);
  hello.region = region.region;
  hello.channel = 5;
  int error;
  auto attach = [&](RawClient& client, uint64_t generation) {
    hello.generation = generation;
    client.greet(hello, wire::key_of_secret(region.secret));
    return client.reply(&error);
  };
  RawClient old = raw(), newer = raw(), late = raw();
  EXPECT_EQ(attach(old, 1), wire::Op::kProve);
  old.send(frame_of(wire::Op::kGrow, 2, wire::ReserveRequest{kSlab, 1}));
  EXPECT_EQ(old.reply(&error), wire::Op::kGrow);
  EXPECT_EQ(attach(newer, 3), wire::Op::kProve);
  newer.send(list_frame(wire::Op::kDiscard, 2, {{0, 4096}}));
  EXPECT_EQ(newer.reply(&error), wire::Op::kDiscard);
  old.send(list_frame(wire::Op::kWrite, 3, {{0, 64}}, 64));
  EXPECT_EQ(old.error_reply(), ESTALE);
  EXPECT_TRUE(old.ended());
  EXPECT_EQ(attach(late, 2), wire::Op::kError);  // its greeting arrived after that of a newer connection
  EXPECT_EQ(error, ESTALE);
  EXPECT_TRUE(late.ended());
}

// A damaged request ends its connection, but not the region: the client comes back.
TEST(HostileGrace, ARegionIsKeptWhenTheServerClosesItsConnection) {
  auto config = default_config();
  config.grace_ns = 60'000'000'000;
  TestServer server(config);
  wire::HelloRequest hello = hello_of(wire::HelloMode::kCreate);
  hello.region_bytes = kRegion;
  wire::Key key = wire::key_of_token(config.token);
  wire::HelloReply region;
  {
    RawClient client(server.port());
    client.greet(hello, key);
    ASSERT_TRUE(client.receive(&region));
    wire::mask_secret(key, client.greeting(), &region);
    Frame damaged = list_frame(wire::Op::kWrite, 2, {{0, 64}}, 64);
    damaged.back() ^= std::byte{1};
    client.send(damaged);
    EXPECT_EQ(client.error_reply(), EBADMSG);
    EXPECT_TRUE(client.ended());
  }
  EXPECT_TRUE(server.eventually([](auto s) { return s.clients == 0; }));
  RawClient again(server.port());
  hello = hello_of(wire::HelloMode::kAttach);
  hello.region = region.region;
  again.greet(hello, wire::key_of_secret(region.secret));
  int error;
  EXPECT_EQ(again.reply(&error), wire::Op::kProve);
  EXPECT_EQ(error, 0);
}

// A request to connect needs a socket. What else is passed is closed, at the latest with its connection.
TEST_F(HostileClient, PassedDescriptorsAreCheckedAndClosed) {
  Frame connect = frame(wire::Op::kConnect, 2, {});
  RawClient over_tcp = greeted();
  over_tcp.send(connect);
  EXPECT_EQ(over_tcp.error_reply(), EBADMSG);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    RawClient early(server_.config().unix_path), client(server_.config().unix_path);
    early.send_passing(connect, ends[1]);
    EXPECT_EQ(early.error_reply(), EBADMSG);
    int error;
    client.greet(new_region(), key());
    EXPECT_EQ(client.reply(&error), wire::Op::kProve);
    for (int i = 0; i < 100; i++) client.send_passing(frame(wire::Op::kPing, 2, {}), ends[1]);
    for (int i = 0; i < 100; i++) EXPECT_EQ(client.reply(&error), wire::Op::kPing);
    client.send_passing(connect, ends[1]);  // not a socket
    client.send(connect);
    EXPECT_EQ(client.error_reply(), EBADMSG);
  }
  close(ends[1]);
  pollfd other_end = {ends[0], 0, 0};
  EXPECT_EQ(poll(&other_end, 1, 5000), 1);  // no process has the writing end any more
  close(ends[0]);
}

TEST_F(HostileClient, OnlyAControllerAcceptsReports) {
  wire::ServerReport report = {};
  strcpy(report.address, "tcp://a:1");
  RawClient client = greeted();
  client.send(frame_of(wire::Op::kRegister, 2, report));
  EXPECT_EQ(client.error_reply(), ENOTSUP);
  client.send(frame(wire::Op::kServers, 3, {}));
  EXPECT_EQ(client.error_reply(), ENOTSUP);
}

TEST_F(HostileClient, ControllersSurviveMutatedReports) {
  auto config = default_config();
  config.controller = true;
  config.memory = 0;
  config.tokens = {{"rack", kServerSecret, server::kMayReport}, {"client", token()}};
  TestServer controller(config);
  std::mt19937_64 random(9);
  const wire::HelloRequest hello = hello_of(wire::HelloMode::kObserve);
  const wire::Key of_server = wire::key_of_token(kServerSecret);
  wire::ServerReport report = {};
  strcpy(report.address, "tcp://a:1");
  int error;
  for (int i = 0; i < 200; i++) {
    RawClient client(controller.port());
    client.greet(hello, of_server);
    EXPECT_EQ(client.reply(&error), wire::Op::kProve);
    Frame f = frame_of(wire::Op::kRegister, 2, report);
    mutate(&f, &random);
    client.send(f);
    client.end();
    EXPECT_TRUE(client.ended());
  }
  RawClient server(controller.port()), client(controller.port());
  server.greet(hello, of_server);
  EXPECT_EQ(server.reply(&error), wire::Op::kProve);
  server.send(frame(wire::Op::kRegister, 2, {}));
  EXPECT_EQ(server.error_reply(), EINVAL);
  client.greet(hello, key());
  EXPECT_EQ(client.reply(&error), wire::Op::kProve);
  client.send(frame(wire::Op::kServers, 2, {}));
  EXPECT_EQ(client.reply(&error), wire::Op::kServers);
}

// A client of a pool cannot add a server to it, nor mark one as leaving.
TEST_F(HostileClient, OnlyAServersTokenReports) {
  auto config = default_config();
  config.controller = true;
  config.tokens = {{"rack", kServerSecret, server::kMayReport}, {"client", token()}};
  TestServer controller(config);
  wire::ServerReport report = {};
  strcpy(report.address, "tcp://rogue:1");
  int error;
  RawClient client(controller.port()), server(controller.port()), maker(controller.port());
  client.greet(hello_of(wire::HelloMode::kObserve), key());
  EXPECT_EQ(client.reply(&error), wire::Op::kProve);
  client.send(frame_of(wire::Op::kRegister, 2, report));
  EXPECT_EQ(client.error_reply(), EPERM);
  server.greet(hello_of(wire::HelloMode::kObserve), wire::key_of_token(kServerSecret));
  EXPECT_EQ(server.reply(&error), wire::Op::kProve);
  server.send(frame_of(wire::Op::kRegister, 2, report));
  EXPECT_EQ(server.reply(&error), wire::Op::kRegister);
  server.send(frame(wire::Op::kServers, 3, {}));
  EXPECT_EQ(server.error_reply(), EPERM);
  maker.greet(new_region(), wire::key_of_token(kServerSecret));
  EXPECT_EQ(maker.error_reply(), EPERM);
}

TEST_F(HostileClient, SilentConnectionsAreClosed) {
  RawClient client = raw();
  client.send(Frame(3, std::byte{0x46}));
  EXPECT_TRUE(client.ended());  // within the ten seconds for which the client receives
}

// Memory of this process, which the server shares.
uint64_t private_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size, resident, shared;
  file >> size >> resident >> shared;
  return (resident - shared) * kPageSize;
}

// Before its greeting a connection has no more memory than the greeting needs, whatever length it announces.
TEST_F(HostileClient, ConnectionsWithoutAGreetingTakeLittleMemory) {
  Frame large = frame(wire::Op::kHello, 3, Frame(wire::kMaxPayload));
  Frame cut(large.begin(), large.begin() + 100000), part = hello_frame(kRegion);
  part.resize(part.size() - 1);
  uint64_t before = private_bytes();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 400; i++) {
    clients.push_back(std::make_unique<RawClient>(server_.port()));
    clients.back()->send(i % 2 ? cut : part);
  }
  EXPECT_EQ(clients[1]->error_reply(), EBADMSG);
  EXPECT_LT(private_bytes() - before, uint64_t{8} * kMiB);
}

// They do not keep others out: the oldest is closed for each new one. The same holds for connections that were
// challenged.
TEST_F(HostileClient, ManyConnectionsWithoutAGreeting) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 700; i++) {
    clients.push_back(std::make_unique<RawClient>(server_.port()));
    if (i % 2 == 0) clients.back()->send(hello_frame(kRegion));
  }
  RawClient honest = greeted();
  EXPECT_TRUE(clients[0]->ended());
  EXPECT_GT(server_->stats().clients, 500u);  // not all of them were closed
}

// What the server allocated for many connections is returned to the kernel when they have ended.
TEST_F(HostileClient, MemoryIsReturnedAfterAFlood) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the allocators of sanitizers keep what is freed";
#endif
  Frame large = list_frame(wire::Op::kWrite, 3, {{0, 100'000}}, 100'000), part(large.begin(), large.end() - 1);
  uint64_t before = private_bytes();
  {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 400; i++) {
      clients.push_back(std::make_unique<RawClient>(greeted()));
      clients.back()->send(part);
    }
    EXPECT_TRUE(server_.eventually([&](auto) { return private_bytes() - before > uint64_t{32} * kMiB; }));
  }
  EXPECT_TRUE(server_.eventually([&](auto) { return private_bytes() < before + uint64_t{4} * kMiB; }));
}

TEST_F(HostileClient, ServersSurviveMutatedFrames) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; i++) {
    RawClient client = i % 4 == 0 ? raw() : greeted();
    for (int n = 0; n < 4; n++) {
      Frame choices[] = {hello_frame(kRegion),
                         list_frame(wire::Op::kRead, 5, {{0, 4096}, {8192, 100}}),
                         list_frame(wire::Op::kWrite, 6, {{4096, 64}}, 64),
                         list_frame(wire::Op::kDiscard, 7, {{0, 1 << 20}}),
                         frame_of(wire::Op::kGrow, 8, wire::ReserveRequest{kSlab, 1}),
                         frame(wire::Op::kStats, 9, {})};
      Frame f = choices[random() % std::size(choices)];
      mutate(&f, &random);
      client.send(f);
    }
    if (i % 2) client.end();
  }
  EXPECT_TRUE(server_.eventually([](auto s) { return s.clients == 2; }));
}

// A request that concerns many pages of many snapshots goes on in pieces, between which others are served.
TEST_F(HostileClient, ALongRequestLetsOthersPass) {
  constexpr int kSnapshots = 300, kRounds = 20, kPages = 256;
  RawClient slow(server_.port()), other = greeted();
  slow.greet(new_region(), key());
  wire::HelloReply region;
  ASSERT_TRUE(slow.receive(&region));
  wire::mask_secret(key(), slow.greeting(), &region);  // it is its own inverse
  int error;
  slow.send(frame_of(wire::Op::kGrow, 2, wire::ReserveRequest{align_up(uint64_t{kRounds} << 20, wire::kSlabBytes), 1}));
  ASSERT_EQ(slow.reply(&error), wire::Op::kGrow);
  std::vector<RawClient> snapshots;
  for (int i = 0; i < kSnapshots; i++) {
    wire::HelloRequest hello = hello_of(wire::HelloMode::kSnapshot);
    hello.region = region.region;
    snapshots.emplace_back(server_.port()).greet(hello, wire::key_of_secret(region.secret));
    ASSERT_EQ(snapshots.back().reply(&error), wire::Op::kProve);
  }
  int passed = 0;
  for (uint64_t round = 0; round < kRounds && passed == 0; round++) {
    slow.send(list_frame(wire::Op::kWrite, 3, {{round << 20, kPages * 4096}}, kPages * 4096));
    other.send(frame(wire::Op::kPing, 2, {}));
    ASSERT_EQ(other.reply(&error), wire::Op::kPing);
    passed += !slow.has_reply();
    ASSERT_EQ(slow.reply(&error), wire::Op::kWrite);
  }
  EXPECT_GT(passed, 0);
}

}  // namespace
}  // namespace farside::testing
