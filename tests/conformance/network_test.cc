// Networks that reset connections and stall: no request may be lost or take effect twice, and the limit of the retry
// policy must hold.
#include <fcntl.h>

#include <random>

#include "base/clock.h"
#include "proxy.h"
#include "ucx_relay.h"

namespace farside::testing {
namespace {

using remote::RemoteStore;

constexpr uint64_t kSecond = 1'000'000'000;
const ucx::Settings kUcx = {FARSIDE_UCX_HELPER, "tcp"};

server::ServerConfig config_with_grace() {
  auto config = default_config();
  config.grace_ns = 20 * kSecond;
  return config;
}

class Network : public ::testing::Test {
 protected:
  std::unique_ptr<RemoteStore> connect_with(double limit_s, const std::string& address, unsigned replicas = 1) {
    transport::RetryPolicy p = {static_cast<uint64_t>(limit_s * static_cast<double>(kSecond))};
    return connect(address, server_.config().token, 2 * kSlab, replicas, p);
  }

  TestServer server_{config_with_grace()};
  Proxy proxy_{server_.port()};
};

// What breaks and returns, also where pages are read and written one-sidedly, which the proxy does not see: the server
// ends that access with the last connection of a region, and grants it again.
class NetworkOver : public ::testing::TestWithParam<const char*> {
 protected:
  NetworkOver() {
    if (uses_ucx()) relay_ = std::make_unique<UcxTestRelay>(kUcx, unix_path());
  }
  static bool uses_ucx() { return std::string(GetParam()) == "ucx"; }
  static server::ServerConfig config() {
    auto made = config_with_grace();
    if (uses_ucx()) made.ucx = kUcx;
    return made;
  }
  std::unique_ptr<RemoteStore> connect_through_proxy() {
    std::string address = GetParam() + proxy_.address().substr(3);
    return connect(address, server_.config().token, 2 * kSlab, 1, {10 * kSecond},
                   {.ucx = relay_ ? relay_->socket().c_str() : nullptr});
  }
  void become_one_sided(Channel* channel) {
    if (uses_ucx()) wait_for_one_sided_reads(&server_, channel);
  }

  TestServer server_{config()};
  Proxy proxy_{server_.port()};
  std::unique_ptr<UcxTestRelay> relay_;
};
// The thread sanitizer does not see that the server closes descriptors, by system calls of its own, whose numbers the
// proxy then gets: it takes that for a race.
#ifdef __SANITIZE_THREAD__
const auto kTransports = ::testing::Values("tcp");
#else
const auto kTransports = ::testing::Values("tcp", "ucx");
#endif
INSTANTIATE_TEST_SUITE_P(All, NetworkOver, kTransports,
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST_P(NetworkOver, BrokenConnectionsAreReplacedWithoutLoss) {
  auto store = connect_through_proxy();
  auto channel = open(store.get());
  become_one_sided(channel.get());
  std::mt19937_64 random(3);
  constexpr size_t kBytes = 2 << 20;
  Bytes model(kBytes);
  for (int round = 0; round < 60; round++) {
    // Writes that do not overlap, all in flight when connections are reset.
    Token tokens[8];
    std::vector<Bytes> data(8);
    for (size_t i = 0; i < 8; i++) {
      uint64_t at = i * (kBytes / 8) + random() % 1000;
      data[i] = pattern(1 + random() % (kBytes / 8 - 1000), random());
      ByteRange s = {at, static_cast<uint32_t>(data[i].size()), data[i].data()};
      ASSERT_EQ(channel->submit_write({&s, 1}, -1, &tokens[i]), 0);
      std::copy(data[i].begin(), data[i].end(), model.begin() + static_cast<long>(at));
      if (random() % 12 == 0) proxy_.cut();
    }
    for (Token t : tokens) ASSERT_EQ(channel->wait(t, kTestTimeoutNs), 0);
    if (random() % 3 == 0) proxy_.cut();
    for (size_t at = 0; at < kBytes; at += 1 << 20) {
      ASSERT_EQ(read(channel.get(), at, 1 << 20),
                Bytes(model.begin() + static_cast<long>(at), model.begin() + static_cast<long>(at + (1 << 20))));
    }
  }
}

// A changed bit in a request or a reply costs its connection, and nothing else.
TEST_F(Network, DamagedMessagesAreRepeated) {
  auto store = connect_with(10, proxy_.address());
  auto channel = open(store.get());
  for (int round = 0; round < 40; round++) {
    Bytes data = pattern(50'000, static_cast<uint64_t>(round));
    if (round % 2 == 0) proxy_.damage = 1;
    ASSERT_EQ(write(channel.get(), 0, data), 0) << round;
    if (round % 3 == 0) proxy_.damage = 1;
    ASSERT_EQ(read(channel.get(), 0, data.size()), data) << round;
  }
  EXPECT_EQ(proxy_.damage, 0);
}

TEST_F(Network, ANetworkThatDamagesEverythingEndsTheChannel) {
  auto store = connect_with(10, proxy_.address());
  auto channel = open(store.get());
  ASSERT_EQ(write(channel.get(), 0, Bytes(100, 1)), 0);
  proxy_.damage = 1000;
  Bytes back(100);
  EXPECT_LT(read(channel.get(), 0, &back), 0);
  proxy_.damage = 0;
}

TEST_P(NetworkOver, DataFromAPipeIsKeptUntilAcknowledged) {
  auto store = connect_through_proxy();
  auto channel = open(store.get());
  become_one_sided(channel.get());
  int fds[2];
  ASSERT_EQ(os::pipe(fds, O_CLOEXEC), 0);
  for (int i = 0; i < 20; i++) {
    Bytes data = pattern(60'000, static_cast<uint64_t>(i));
    ASSERT_EQ(os::write(fds[1], data.data(), data.size()), 60'000);
    ByteRange s = {0, 60'000, nullptr};
    Token token;
    ASSERT_EQ(channel->submit_write({&s, 1}, fds[0], &token), 0);
    proxy_.cut();
    ASSERT_EQ(channel->wait(token, kTestTimeoutNs), 0);
    EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  }
  os::close(fds[0]);
  os::close(fds[1]);
}

// A stall that is longer than the timeout of one connection, and shorter than the limit.
TEST_F(Network, AStalledNetworkDelaysRequests) {
  auto store = connect_with(8, proxy_.address());
  auto channel = open(store.get());
  Bytes data = pattern(100'000, 1);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  proxy_.stalled = true;
  std::thread resumer([&] {
    os::nanosleep_ns(3 * kSecond);
    proxy_.stalled = false;
  });
  uint64_t start = now_ns();
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  EXPECT_GT(now_ns() - start, 2 * kSecond);
  data = pattern(100'000, 2);
  EXPECT_EQ(write(channel.get(), 0, data), 0);
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  resumer.join();
}

// All connections are given up. Their ends, which relays pass on, reach the server before what asks for new ones.
TEST_P(NetworkOver, AStallThatEndsAllConnectionsDoesNotEndTheRegion) {
  auto store = connect_through_proxy();
  auto channel = open(store.get());
  Bytes data = pattern(100'000, 1);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  proxy_.stalled = true;
  std::thread control([&] { store->shrink(kSlab); });
  std::thread resumer([&] {
    os::nanosleep_ns(4 * kSecond);
    proxy_.stalled = false;
  });
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  control.join();
  resumer.join();
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
}

TEST_F(Network, RequestsFailAfterTheLimit) {
  auto store = connect_with(0.8, proxy_.address());
  auto channel = open(store.get());
  ASSERT_EQ(write(channel.get(), 0, Bytes(100, 1)), 0);
  proxy_.stalled = true;
  Bytes back(100);
  uint64_t start = now_ns();
  EXPECT_EQ(read(channel.get(), 0, &back), -ECONNRESET);
  EXPECT_GT(now_ns() - start, kSecond / 2);
  EXPECT_LT(now_ns() - start, 10 * kSecond);
  EXPECT_EQ(read(channel.get(), 0, &back), -ECONNRESET);
}

// Time in which the caller does not poll does not count as time without a reply.
TEST_F(Network, TimeWithoutPollingDoesNotCount) {
  auto store = connect_with(0.8, proxy_.address());
  auto channel = open(store.get());
  Bytes data = pattern(100, 1), back(100);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  ByteRange s = {0, 100, back.data()};
  Token token;
  proxy_.stalled = true;
  ASSERT_EQ(channel->submit_read({&s, 1}, &token), 0);
  proxy_.cut();
  proxy_.stalled = false;
  os::nanosleep_ns(2 * kSecond);
  EXPECT_EQ(channel->wait(token, kTestTimeoutNs), 0);
  EXPECT_EQ(back, data);
}

TEST_P(NetworkOver, RepeatedReservationsCountOnce) {
  auto store = connect_through_proxy();
  for (int i = 0; i < 20; i++) {
    proxy_.cut();
    ASSERT_TRUE(store->grow(2 * kSlab).ok());
    proxy_.cut();
    store->shrink(2 * kSlab);
  }
  EXPECT_EQ(server_->stats().reserved_bytes, 2 * kSlab);
}

TEST_P(NetworkOver, SnapshotsReconnect) {
  auto store = connect_through_proxy();
  auto channel = open(store.get());
  become_one_sided(channel.get());
  Bytes data = pattern(5000, 9);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  proxy_.cut();
  auto ticket = store->prepare_fork();
  ASSERT_TRUE(ticket.ok()) << ticket.status().text();
  ASSERT_EQ(write(channel.get(), 0, Bytes(5000, 1)), 0);
  store->forked_in_parent(*ticket);
}

// All connections of a region break; the client reconnects within the grace time.
TEST_P(NetworkOver, ARegionWithoutConnectionsIsKeptForTheGraceTime) {
  auto store = connect_through_proxy();
  auto channel = open(store.get());
  become_one_sided(channel.get());
  Bytes data = pattern(50'000, 4);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  proxy_.cut();
  EXPECT_TRUE(server_.eventually([](auto s) { return s.clients == 0; }));
  EXPECT_EQ(server_->stats().regions, 1u);
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  channel.reset();
  store.reset();
}

// The control connection, which keeps the region alive, breaks while it is idle, and then the last channel is closed.
TEST_P(NetworkOver, TheControlConnectionIsRestoredBeforeTheLastChannelCloses) {
  auto store = connect_through_proxy();
  proxy_.cut();
  auto channel = open(store.get());
  become_one_sided(channel.get());
  Bytes data = pattern(50'000, 4);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  store->close_channel(channel.release());
  EXPECT_TRUE(server_.eventually([](auto s) { return s.clients == 1; }));
  channel = open(store.get());
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
}

TEST(NetworkGrace, ExpiredRegionsAreFreed) {
  auto config = default_config();
  config.grace_ns = kSecond / 2;
  TestServer server(config);
  Proxy proxy(server.port());
  auto store = connect(proxy.address(), config.token);
  proxy.cut();
  EXPECT_TRUE(server.eventually([](auto s) { return s.clients == 0 && s.regions == 1; }));
  EXPECT_TRUE(server.eventually([](auto s) { return s.regions == 0 && s.reserved_bytes == 0; }));
  EXPECT_FALSE(store->grow(kSlab).ok());  // reconnecting too late is an error
}

// A replica that does not reply is lost after the limit; the other one is used alone.
TEST_F(Network, AnUnreachableReplicaIsLostAfterTheLimit) {
  TestServer second(config_with_grace());
  auto store = connect_with(0.8, proxy_.address() + "," + second.tcp(), 2);
  auto channel = open(store.get());
  Bytes data = pattern(50'000, 4);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  proxy_.stalled = true;
  data = pattern(50'000, 5);
  ASSERT_EQ(write(channel.get(), 0, data), 0);
  EXPECT_EQ(read(channel.get(), 0, data.size()), data);
  proxy_.stalled = false;  // it can be reached again, but has missed a write
  auto other = open(store.get());
  for (uint64_t i = 0; i < 4; i++) EXPECT_EQ(read(other.get(), 0, data.size()), data);
}

}  // namespace
}  // namespace farside::testing
