// Servers of a pool drain, end and return, and are in zones, while writers with a shadow copy go on.
#include "base/inject.h"
#include "remote/repair_fixture.h"

namespace farside::remote {
namespace {

class Drains : public RepairStress {
 protected:
  void connect_pool(unsigned replicas, size_t servers) {
    for (auto& server : servers_) addresses_.push_back(server->address());
    list(servers);
    Status s = try_connect(controller_.address(), replicas);
    ASSERT_TRUE(s.ok()) << s.text();
    ASSERT_TRUE(store_->claim(0, slabs_ * kSlabBytes).ok());
  }
  unsigned zones(uint64_t slab) { return store_->servers().zones(living(slab)); }
  void list(size_t servers) {
    std::vector<std::pair<std::string, wire::ServerState>> all;
    for (size_t s = 0; s < servers; s++)
      all.emplace_back(addresses_[s], drained_ & only(s) ? wire::ServerState::kDraining : wire::ServerState::kUp);
    controller_.set(all, zones_);
  }
  void drain(unsigned server, size_t listed = 4) {
    drained_ |= only(server);
    list(listed);
    servers_[server]->drain(true);
  }
  template <typename Condition>
  bool eventually(Condition holds) {
    for (int i = 0; i < 3000 && !holds(); i++) os::nanosleep_ns(10'000'000);
    return holds();
  }
  bool has_left(unsigned server) {
    return (store_->servers().left() & only(server)) != 0 && servers_[server]->open_connections == 0;
  }
  void move_twice(unsigned replicas) {
    serve({8, 8, 8, 8}, true);
    for (auto& server : servers_) server->delay_of_reads_ns = 200'000;  // so that some are in flight
    connect_pool(replicas, 4);
    start();
    for (unsigned server : {0u, 1u}) {
      drain(server);
      ASSERT_TRUE(eventually([&] { return has_left(server); }));
      EXPECT_EQ(servers_[server]->reserved(), 0u);
      for (uint64_t page = 0; page < kSlabs * kPagesUsed; page++)
        ASSERT_TRUE(has(server, far_of(page), FrameBytes(kPage))) << page;  // it was emptied
      servers_[server]->stop();
    }
    stop();
    EXPECT_EQ(store_->servers().lost(), only(0) | only(1));
    EXPECT_EQ(store_->servers().degraded(), 0u);
    EXPECT_GT(done_, 1000u);
    check_copies();
  }

  FakeController controller_;
  std::vector<std::string> addresses_, zones_;
  ServerSet drained_ = 0;
};

TEST_F(Drains, NoWriteIsLost) { move_twice(1); }

TEST_F(Drains, NoWriteIsLostWithReplicas) { move_twice(2); }

TEST_F(Drains, TheirServerMayEndBeforeItIsEmpty) {
  serve({8, 8, 8, 8}, true);
  connect_pool(2, 4);
  start();
  drain(0);
  drain(1);
  ASSERT_TRUE(eventually([&] { return store_->repair_status().repaired > 0; }));
  servers_[0]->stop();
  ASSERT_TRUE(eventually([&] { return has_left(1) && store_->servers().degraded() == 0; }));
  stop();
  for (uint64_t slab = 0; slab < kSlabs; slab++) EXPECT_EQ(living(slab), only(2) | only(3));
  check_copies();
}

// Until a server with room joins.
TEST_F(Drains, NeedRoom) {
  serve({8, 1, 8}, true);
  connect_pool(1, 1);
  start();
  drain(0, 2);
  ASSERT_TRUE(eventually([&] { return store_->servers().count() == 2 && store_->servers().degraded() == kSlabs - 1; }));
  EXPECT_EQ(store_->servers().left(), 0u);
  list(3);
  ASSERT_TRUE(eventually([&] { return has_left(0); }));
  stop();
  check_copies();
}

TEST_F(Drains, AreCancelled) {
  serve({8}, true);
  connect_pool(1, 1);
  start();
  servers_[0]->drain(true);
  ASSERT_TRUE(eventually([&] { return store_->servers().draining() == only(0); }));
  EXPECT_FALSE(store_->claim(kSlabs * kSlabBytes, kSlabBytes).ok());
  servers_[0]->drain(false);
  ASSERT_TRUE(eventually([&] { return store_->servers().draining() == 0; }));
  EXPECT_TRUE(store_->claim(kSlabs * kSlabBytes, kSlabBytes).ok());
  stop();
  EXPECT_EQ(store_->servers().degraded(), 0u);
  check_copies();
}

TEST_F(Drains, KeepCopiesInDifferentZones) {
  serve({8, 8, 8, 8}, true);
  zones_ = {"a", "a", "b", "b"};
  connect_pool(2, 4);
  for (uint64_t slab = 0; slab < kSlabs; slab++) EXPECT_EQ(zones(slab), 2u);
  start_writers(1);
  store_->start_threads();
  drain(2);
  ASSERT_TRUE(eventually([&] { return has_left(2); }));
  for (uint64_t slab = 0; slab < kSlabs; slab++) EXPECT_EQ(zones(slab), 2u);
  drain(3);  // no other zone is left
  ASSERT_TRUE(eventually([&] { return has_left(3) && store_->servers().degraded() == 0; }));
  stop();
  for (uint64_t slab = 0; slab < kSlabs; slab++) EXPECT_EQ(living(slab), only(0) | only(1));
  check_copies();
}

// Copies that were placed in one zone, as there was no other, and when one joins.
TEST_F(Drains, AreNotNeededToMoveCopiesToAnotherZone) {
  serve({8, 8, 8}, true);
  zones_ = {"a", "a", "b"};
  connect_pool(2, 2);
  EXPECT_EQ(store_->servers().degraded(), 0u);
  start_writers(1);
  list(3);
  EXPECT_TRUE(store_->grow(0).ok());
  EXPECT_EQ(store_->servers().degraded(), kSlabs);
  repair_all();
  stop();
  EXPECT_EQ(store_->servers().degraded(), 0u);
  for (uint64_t slab = 0; slab < kSlabs; slab++) {
    EXPECT_EQ(std::popcount(living(slab)), 2);
    EXPECT_EQ(zones(slab), 2u);
  }
  check_copies();
}

TEST_F(Drains, AndNewCopiesNeedRoomInDifferentZones) {
  serve({8, 8, 2}, true);
  zones_ = {"a", "a", "b"};
  for (auto& server : servers_) addresses_.push_back(server->address());
  list(3);
  ASSERT_TRUE(try_connect(controller_.address(), 2).ok());
  EXPECT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  Status full = store_->claim(2 * kSlabBytes, kSlabBytes);
  EXPECT_EQ(full.code(), ENOMEM);
  EXPECT_NE(std::string(full.text()).find("in different zones"), std::string::npos) << full.text();
  list(2);
  EXPECT_TRUE(store_->grow(0).ok());  // b takes no new slabs any more
  EXPECT_TRUE(store_->claim(2 * kSlabBytes, kSlabBytes).ok());
  EXPECT_EQ(living(2), only(0) | only(1));
  EXPECT_EQ(store_->servers().degraded(), 1u);
  repair_all();
  EXPECT_EQ(living(2), only(0) | only(1));
}

// More servers come and go than a process knows numbers.
class Numbers : public Drains {
 protected:
  static constexpr unsigned kRounds = kSanitized ? kMaxServers + 1 : 3 * kMaxServers / 2;

  // As the thread of the repair.
  template <typename Condition>
  void tend_until(Condition holds) {
    EXPECT_TRUE(eventually([&] {
      store_->repair().tend();
      repair_all();
      return holds();
    }));
  }
  void fork() {
    auto ticket = store_->prepare_fork();
    ASSERT_TRUE(ticket.ok());
    store_->forked_in_parent(*ticket);
  }
  void begin(unsigned replicas) {
    slabs_ = 1;
    serve({8, 8, 8}, true);
    connect_pool(replicas, 3);
    idle_ = open();
    touch();
    start_writers(1);
  }
  // With the channel of a thread that has been idle.
  void touch() {
    FrameBytes data = numbered(kPage), back(kPage);
    EXPECT_EQ(write(*idle_, kSlabBytes - kPage, data), 0);
    EXPECT_EQ(read(*idle_, kSlabBytes - kPage, &back), 0);
    EXPECT_EQ(back, data);
  }
  void end() {
    touch();
    stop();
    EXPECT_EQ(store_->servers().degraded(), 0u);
    check_copies();
  }

  std::unique_ptr<Channel> idle_;
};

TEST_F(Numbers, AreThoseOfServersThatReturn) {
  begin(1);
  for (unsigned round = 0; round < kRounds; round++) {
    auto server = static_cast<unsigned>(std::countr_zero(living(0)));
    drain(server, 3);
    tend_until([&] { return has_left(server); });
    if (round % 8 == 0) fork();
    drained_ = 0;
    list(3);
    servers_[server]->drain(false);
    tend_until([&] { return (store_->servers().retired() & only(server)) != 0; });
    EXPECT_TRUE(store_->grow(0).ok());
    ASSERT_EQ(store_->servers().usable(), 7u);
  }
  EXPECT_EQ(store_->servers().count(), 3u);
  EXPECT_EQ(store_->servers().states().reused, kRounds);
  end();
}

TEST_F(Numbers, ArePassedOnFromServersThatEnd) {
  begin(2);
  for (unsigned round = 0; round < kRounds; round++) {
    server(static_cast<unsigned>(std::countr_zero(living(0)))).stop();
    tend_until([&] { return std::popcount(store_->servers().usable()) == 2; });
    servers_.push_back(std::make_unique<FakeServer>(8, true));
    controller_.set({{servers_.back()->address(), wire::ServerState::kUp}});
    // Connecting has a time limit, which a busy machine may exceed.
    ASSERT_TRUE(eventually([&] { return store_->grow(0).ok(); }));
    ASSERT_EQ(std::popcount(store_->servers().usable()), 3);
    tend_until([&] { return store_->servers().degraded() == 0; });
    if (round % 8 == 0) fork();
  }
  EXPECT_EQ(store_->servers().count(), kMaxServers);
  EXPECT_EQ(store_->servers().states().reused, kRounds + 3 - kMaxServers);
  end();
}

}  // namespace
}  // namespace farside::remote
