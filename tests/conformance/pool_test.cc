// Several servers: placement of slabs, requests over several slabs, reservations, and failures of servers.
#include <algorithm>
#include <random>
#include <thread>

#include "remote/connect.h"
#include "ucx_relay.h"

namespace farside::testing {
namespace {

using remote::connect_store;
using remote::RemoteStore;

constexpr uint64_t kWide = 64 * kSlab;
const ucx::Settings kUcx = {FARSIDE_UCX_HELPER, "tcp"};

class Pool {
 public:
  Pool(size_t servers, unsigned replicas, const std::string& transport = "tcp", uint64_t slabs = 64) {
    if (transport == "ucx") ucx_relay_ = std::make_unique<UcxTestRelay>(kUcx, unix_path());
    for (size_t i = 0; i < servers; i++) {
      auto config = default_config();
      config.memory = slabs * kSlab;
      if (ucx_relay_) config.ucx = kUcx;
      servers_.push_back(std::make_unique<TestServer>(config));
      address_ += (i ? "," : "") + servers_[i]->address(transport);
    }
    auto store = connect_store({.address = address_.c_str(),
                                .token = default_config().token.c_str(),
                                .region_bytes = kWide,
                                .replicas = replicas,
                                .relays = {.ucx = ucx_relay_ ? ucx_relay_->socket().c_str() : nullptr}});
    if (!store.ok()) throw std::runtime_error(store.status().text());
    store_ = std::move(*store);
  }
  RemoteStore* operator->() { return store_.get(); }
  RemoteStore* store() { return store_.get(); }
  server::Server& server(size_t i) { return *servers_[i]->operator->(); }
  uint64_t stored(size_t i) { return server(i).stats().stored_bytes; }
  uint64_t reserved(size_t i) { return server(i).stats().reserved_bytes; }
  // Over UCX: waits until these slabs are read and written without the servers.
  void become_one_sided(Channel* channel, std::initializer_list<uint64_t> slabs) {
    auto reads = [this] {
      uint64_t all = 0;
      for (auto& server : servers_) all += (*server)->stats().reads;
      return all;
    };
    if (ucx_relay_) wait_for_one_sided_reads(reads, channel, slabs);
  }

 private:
  std::unique_ptr<UcxTestRelay> ucx_relay_;
  std::vector<std::unique_ptr<TestServer>> servers_;
  std::string address_;
  std::unique_ptr<RemoteStore> store_;
};

// What concerns requests is tested with each transport.
class PoolOver : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, PoolOver, ::testing::Values("tcp", "ucx"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(Pool, SlabsArePlacedOnTheServersWithMostRoom) {
  Pool pool(3, 1);
  ASSERT_TRUE(pool->grow(9 * kSlab).ok());
  ASSERT_TRUE(pool->claim(0, 9 * kSlab).ok());
  auto channel = open(pool.store());
  for (uint64_t i = 0; i < 9; i++) ASSERT_EQ(write(channel.get(), i * kSlab, Bytes(4096, 1)), 0);
  for (size_t s = 0; s < 3; s++) {
    EXPECT_EQ(pool.reserved(s), 3 * kSlab);
    EXPECT_EQ(pool.stored(s), 3 * 4096u);
  }
}

TEST(Pool, OneServerIsNoticedOverEveryTransport) {
  UcxTestRelay relay(kUcx, unix_path());
  auto config = default_config();
  config.ucx = kUcx;
  TestServer server(config), other;
  auto connect = [&](const std::string& second) {
    std::string list = server.tcp() + "," + second;
    return connect_store({.address = list.c_str(),
                          .token = config.token.c_str(),
                          .region_bytes = kWide,
                          .replicas = 2,
                          .relays = {.ucx = relay.socket().c_str()}})
        .status();
  };
  for (const std::string& second :
       {server.tcp(), server.shm(), server.address("ucx"), "tcp://localhost:" + std::to_string(server.port())}) {
    Status refused = connect(second);
    EXPECT_NE(std::string(refused.text()).find("are one memory server"), std::string::npos) << second << refused.text();
  }
  for (const std::string& second : {other.tcp(), other.shm()}) EXPECT_TRUE(connect(second).ok()) << second;
}

TEST_P(PoolOver, RequestsThatSpanSlabsAreSplitAndJoined) {
  Pool pool(3, 1, GetParam());
  ASSERT_TRUE(pool->claim(0, kWide).ok());
  auto channel = open(pool.store());
  pool.become_one_sided(channel.get(), {1, 2, 3});
  Bytes data = pattern(transport::kMaxRequestBytes, 1), back(data.size());
  for (uint64_t i = 1; i < 8; i++) ASSERT_EQ(write(channel.get(), i * kSlab - 400'000, data), 0);
  for (uint64_t i = 1; i < 8; i++) EXPECT_EQ(read(channel.get(), i * kSlab - 400'000, data.size()), data);
  std::vector<std::pair<uint64_t, uint32_t>> ranges;  // ranges on all servers, one in four across two slabs
  for (uint64_t i = 1; i < 64; i++) {
    for (uint64_t at : {i * kSlab - 2048, i * kSlab + 8192, i * kSlab - 16384, i * kSlab + 16384})
      ranges.push_back({at, 4096});
  }
  Token token;
  ASSERT_EQ(channel->submit_write(byte_ranges(ranges, data.data()), -1, &token), 0);
  ASSERT_EQ(channel->wait(token, kTestTimeoutNs), 0);
  ASSERT_EQ(channel->submit_read(byte_ranges(ranges, back.data()), &token), 0);
  ASSERT_EQ(channel->wait(token, kTestTimeoutNs), 0);
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + static_cast<long>(ranges.size() * 4096), data.begin()));
  ASSERT_EQ(discard(channel.get(), kSlab, 3 * kSlab), 0);
  EXPECT_EQ(read(channel.get(), 2 * kSlab - 400'000, data.size()), Bytes(data.size()));
}

TEST(Pool, ClaimsBeyondTheServersMemoryAreRejected) {
  Pool pool(2, 1, "tcp", 8);
  EXPECT_TRUE(pool->grow(12 * kSlab).ok());
  Status refused = pool->grow(5 * kSlab);
  EXPECT_EQ(refused.code(), ENOMEM);
  EXPECT_TRUE(strstr(refused.text(), "full")) << refused.text();
  // One page in each slab: the limit is the number of slabs, however little of each is used.
  for (uint64_t i = 0; i < 16; i++) EXPECT_TRUE(pool->claim(i * kSlab, 4096).ok()) << i;
  EXPECT_EQ(pool->claim(16 * kSlab, 4096).code(), ENOMEM);
  EXPECT_TRUE(pool->claim(15 * kSlab + 4096, kSlab - 4096).ok());  // the slab was reserved with its first page
  EXPECT_EQ(pool->claim(15 * kSlab + 8192, 2 * kSlab).code(), ENOMEM);
  pool->unclaim(3 * kSlab, 4096);
  EXPECT_TRUE(pool->claim(16 * kSlab, 4096).ok());
}

TEST(Pool, ShrinkReleasesReservations) {
  Pool pool(2, 2);
  ASSERT_TRUE(pool->grow(20 * kSlab).ok());
  ASSERT_TRUE(pool->claim(0, 4 * kSlab).ok());
  pool->shrink(10 * kSlab);
  for (size_t s = 0; s < 2; s++) EXPECT_EQ(pool.reserved(s), 10 * kSlab);
  pool->shrink(10 * kSlab);  // four slabs remain in use
  for (size_t s = 0; s < 2; s++) EXPECT_EQ(pool.reserved(s), 4 * kSlab);
}

TEST(Pool, ReplicasRequireAsManyServers) {
  auto config = default_config();
  TestServer server(config);
  auto store = connect_store({server.tcp().c_str(), config.token.c_str(), kWide, 2});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), EINVAL);
  EXPECT_TRUE(strstr(store.status().text(), "replicas")) << store.status().text();
  std::string two = server.tcp() + ",tcp://127.0.0.1:1";
  auto missing = connect_store({two.c_str(), config.token.c_str(), kWide, 2});
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(strstr(missing.status().text(), "127.0.0.1:1")) << missing.status().text();
}

TEST(Pool, EveryReplicaStoresEveryByte) {
  for (const char* transport : {"tcp", "shm", "ucx"}) {
    Pool pool(3, 3, transport);
    ASSERT_TRUE(pool->claim(0, 4 * kSlab).ok());
    auto channel = open(pool.store());
    pool.become_one_sided(channel.get(), {0, 1});
    Bytes data = pattern(300'000, 5);
    ASSERT_EQ(write(channel.get(), kSlab - 1000, data), 0);
    for (size_t s = 0; s < 3; s++) EXPECT_GE(pool.stored(s), data.size());
    ASSERT_EQ(discard(channel.get(), 0, 3 * kSlab), 0);
    for (size_t s = 0; s < 3; s++) EXPECT_EQ(pool.stored(s), 0u);
  }
}

TEST_P(PoolOver, AllButOneReplicaMayFail) {
  Pool pool(3, 3, GetParam());
  ASSERT_TRUE(pool->claim(0, 4 * kSlab).ok());
  auto channel = open(pool.store());
  pool.become_one_sided(channel.get(), {0, 1});
  Bytes model = pattern(transport::kMaxRequestBytes, 1);
  for (size_t s = 0; s < 3; s++) {
    ASSERT_EQ(write(channel.get(), kSlab - 5000, model), 0);
    if (s == 2) break;
    pool.server(s).stop();
    EXPECT_EQ(read(channel.get(), kSlab - 5000, model.size()), model);
    model = pattern(model.size(), s + 2);
  }
  auto second = open(pool.store());
  EXPECT_EQ(read(second.get(), kSlab - 5000, model.size()), model);
  EXPECT_TRUE(pool->grow(kSlab).ok());
  EXPECT_TRUE(pool->claim(10 * kSlab, kSlab).ok());
  pool.server(2).stop();
  EXPECT_EQ(write(channel.get(), kSlab - 5000, model), -ECONNRESET);
  EXPECT_EQ(read(second.get(), kSlab - 5000, &model), -ECONNRESET);
  Status status;
  EXPECT_EQ(pool->open_channel(&status), nullptr);
  EXPECT_FALSE(pool->grow(kSlab).ok());
}

// Reads and writes in flight when a replica fails must all complete successfully.
TEST_P(PoolOver, RequestsInFlightCompleteWhenAReplicaFails) {
  for (int round = 0; round < 10; round++) {
    Pool pool(2, 2, GetParam());
    ASSERT_TRUE(pool->claim(0, 32 * kSlab).ok());
    auto channel = open(pool.store());
    pool.become_one_sided(channel.get(), {0, 1});
    Bytes data = pattern(8 * transport::kMaxRequestBytes, 3), back(data.size());
    Token writes[8], reads[8];
    for (size_t i = 0; i < 8; i++) {
      ByteRange s = {i * kSlab, transport::kMaxRequestBytes, &data[i * transport::kMaxRequestBytes]};
      ASSERT_EQ(channel->submit_write({&s, 1}, -1, &writes[i]), 0);
      if (i == 4) pool.server(static_cast<size_t>(round % 2)).stop();
    }
    for (Token t : writes) ASSERT_EQ(channel->wait(t, kTestTimeoutNs), 0);
    for (size_t i = 0; i < 8; i++) {
      ByteRange s = {i * kSlab, transport::kMaxRequestBytes, &back[i * transport::kMaxRequestBytes]};
      ASSERT_EQ(channel->submit_read({&s, 1}, &reads[i]), 0);
    }
    for (Token t : reads) ASSERT_EQ(channel->wait(t, kTestTimeoutNs), 0);
    EXPECT_EQ(back, data);
  }
}

// Each thread compares its data with a copy while servers fail.
TEST_P(PoolOver, ShadowCopiesMatchAfterFailures) {
  Pool pool(3, 3, GetParam());
  ASSERT_TRUE(pool->claim(0, 16 * kSlab).ok());
  std::atomic<int> wrong{0}, done{0};
  std::vector<std::thread> threads;
  constexpr size_t kBytes = 400'000;
  for (uint64_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      auto channel = open(pool.store());
      std::mt19937_64 random(t);
      Bytes model(kBytes);
      uint64_t base = (2 * t + 1) * kSlab - kBytes / 2;  // half of the range is in the next slab
      for (int i = 0; i < 400; i++, done++) {
        uint64_t at = random() % kBytes, bytes = 1 + random() % std::min<uint64_t>(kBytes - at, 50'000);
        auto place = model.begin() + static_cast<long>(at);
        if (random() % 2) {
          wrong += read(channel.get(), base + at, bytes) != Bytes(place, place + static_cast<long>(bytes));
          continue;
        }
        Bytes data = pattern(bytes, random());
        std::copy(data.begin(), data.end(), place);
        wrong += write(channel.get(), base + at, data) != 0;
      }
      wrong += read(channel.get(), base, kBytes) != model;
    });
  }
  for (size_t s : {1, 0}) {
    int until = done + 400;
    while (done < until && done < 1600) os::nanosleep_ns(100'000);
    pool.server(s).stop();
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(PoolOver, SlabsWithoutReplicaAreLostWithTheirServer) {
  Pool pool(2, 1, GetParam());
  ASSERT_TRUE(pool->claim(0, 4 * kSlab).ok());
  auto channel = open(pool.store());
  pool.become_one_sided(channel.get(), {0, 1, 2, 3});
  for (uint64_t i = 0; i < 4; i++) ASSERT_EQ(write(channel.get(), i * kSlab, Bytes(10, 1)), 0);
  pool.server(0).stop();
  int lost = 0, kept = 0;
  for (uint64_t i = 0; i < 4; i++) {
    Bytes back(10);
    int r = read(channel.get(), i * kSlab, &back);
    EXPECT_TRUE(r == 0 || r == -ECONNRESET) << r;
    kept += r == 0 && back == Bytes(10, 1);
    lost += r != 0;
  }
  EXPECT_EQ(kept, 2);
  EXPECT_EQ(lost, 2);
  EXPECT_TRUE(pool->claim(8 * kSlab, 4 * kSlab).ok());  // new slabs are placed on the other server
  for (uint64_t i = 8; i < 12; i++) EXPECT_EQ(write(channel.get(), i * kSlab, Bytes(10, 1)), 0);
}

}  // namespace
}  // namespace farside::testing
