// Clients whose requests violate the protocol. The server must reject them, and serve a well-behaved client meanwhile.
#include <fcntl.h>

#include <fstream>

#include "base/bits.h"
#include "base/clock.h"
#include "raw_client.h"

namespace farside::testing {
namespace {

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

TEST_F(HostileClient, OnlyAControllerAcceptsReports) {
  wire::ServerReport report = {};
  strcpy(report.address, "tcp://a:1");
  RawClient client = greeted();
  client.send(frame_of(wire::Op::kRegister, 2, report));
  EXPECT_EQ(client.error_reply(), ENOTSUP);
  client.send(frame(wire::Op::kServers, 3, {}));
  EXPECT_EQ(client.error_reply(), ENOTSUP);
  client.send(frame(wire::Op::kCordon, 4, {}));
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

// A client of a pool cannot add a server to it, nor mark one as leaving; and only an operator cordons one.
TEST_F(HostileClient, OnlyTokensWithTheRightReportAndCordon) {
  auto config = default_config();
  config.controller = true;
  config.tokens = {{"rack", kServerSecret, server::kMayReport},
                   {"client", token()},
                   {"operator", kOperatorSecret, server::kMayOperate}};
  TestServer controller(config);
  wire::ServerReport report = {};
  wire::CordonRequest cordon = {};
  strcpy(report.address, "tcp://rogue:1");
  strcpy(cordon.address, "tcp://rogue:1");
  int error;
  RawClient client(controller.port()), server(controller.port()), maker(controller.port()),
      operator_(controller.port());
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
  client.send(frame_of(wire::Op::kCordon, 3, cordon));
  EXPECT_EQ(client.error_reply(), EPERM);
  server.send(frame_of(wire::Op::kCordon, 4, cordon));
  EXPECT_EQ(server.error_reply(), EPERM);
  server.send(frame_of(wire::Op::kCopies, 5, wire::CopiesReport{1, 1, 0, 0}));
  EXPECT_EQ(server.error_reply(), EPERM);
  client.send(frame_of(wire::Op::kCopies, 4, wire::CopiesReport{0, 1, 0, 0}));
  EXPECT_EQ(client.error_reply(), EINVAL);
  client.send(frame_of(wire::Op::kCopies, 5, wire::CopiesReport{1, 1, 0, 0}));
  EXPECT_EQ(client.reply(&error), wire::Op::kCopies);
  operator_.greet(hello_of(wire::HelloMode::kObserve), wire::key_of_token(kOperatorSecret));
  EXPECT_EQ(operator_.reply(&error), wire::Op::kProve);
  operator_.send(frame(wire::Op::kCordon, 2, {}));
  EXPECT_EQ(operator_.error_reply(), EINVAL);
  operator_.send(frame_of(wire::Op::kCordon, 3, cordon));
  EXPECT_EQ(operator_.reply(&error), wire::Op::kCordon);
  strcpy(cordon.address, "tcp://other:1");
  operator_.send(frame_of(wire::Op::kCordon, 4, cordon));
  EXPECT_EQ(operator_.error_reply(), ENOENT);
  maker.greet(new_region(), wire::key_of_token(kServerSecret));
  EXPECT_EQ(maker.error_reply(), EPERM);
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
