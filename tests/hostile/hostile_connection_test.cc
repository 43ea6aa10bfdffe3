// Clients that abuse connections: their greeting, their end, their number. The server must stay small, and serve a
// well-behaved client meanwhile.
#include <fcntl.h>

#include <fstream>

#include "base/bits.h"
#include "base/clock.h"
#include "raw_client.h"

namespace farside::testing {
namespace {

// Memory of this process, which the server shares.
uint64_t private_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size, resident, shared;
  file >> size >> resident >> shared;
  return (resident - shared) * kPageSize;
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

TEST_F(HostileClient, SilentConnectionsAreClosed) {
  RawClient client = raw();
  client.send(Frame(3, std::byte{0x46}));
  EXPECT_TRUE(client.ended());  // within the ten seconds for which the client receives
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
  if (kSanitized) GTEST_SKIP() << "the allocators of sanitizers keep what is freed";
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

}  // namespace
}  // namespace farside::testing
