// Lost copies are made anew while slabs are written, discarded, freed and forked. The protocol is checked by
// tests/model/repair_model_test.cc; here its implementation is compared with a shadow copy.
#include "remote/repair.h"

#include <algorithm>
#include <bit>
#include <random>

#include "remote/pool_fixture.h"

namespace farside::remote {
namespace {

constexpr uint64_t kPage = 4096;

class Repairs : public Pool {
 protected:
  // Loses a server: it ends, and a write to each slab finds it.
  void end_server(unsigned server, uint64_t slabs) {
    servers_[server]->stop();
    auto channel = open();
    for (uint64_t slab = 0; slab < slabs; slab++)
      ASSERT_EQ(write(*channel, (slab + 1) * kSlabBytes - kPage, FrameBytes(kPage, std::byte{7})), 0);
  }
  void repair_all() {
    while (store_->repair().step()) {}
  }
  ServerSet living(uint64_t slab) { return store_->servers().holders(slab) & store_->servers().usable(); }
};

TEST_F(Repairs, MakeACopyOnAnotherServer) {
  serve({8, 8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, 3 * kSlabBytes).ok());
  auto channel = open();
  FrameBytes data = numbered(300'000);
  for (uint64_t slab = 0; slab < 3; slab++) ASSERT_EQ(write(*channel, slab * kSlabBytes + 5 * kPage, data), 0);
  EXPECT_FALSE(store_->repair().step());  // nothing is lost
  end_server(0, 3);
  uint64_t degraded = store_->servers().degraded();
  EXPECT_GT(degraded, 0u);
  EXPECT_EQ(store_->repair_status().degraded, degraded);
  EXPECT_LT(store_->repair_status().seconds_left, 0);
  repair_all();
  EXPECT_EQ(store_->servers().degraded(), 0u);
  RepairStatus done = store_->repair_status();
  EXPECT_EQ(done.degraded, 0u);
  EXPECT_EQ(done.repaired, degraded);
  EXPECT_EQ(done.seconds_left, 0);
  for (uint64_t slab = 0; slab < 3; slab++) {
    EXPECT_EQ(living(slab), only(1) | only(2));
    for (unsigned s : {1u, 2u}) EXPECT_TRUE(has(s, slab * kSlabBytes + 5 * kPage, data));
  }
  end_server(1, 3);  // the new copies are all that is left
  for (uint64_t slab = 0; slab < 3; slab++) {
    FrameBytes back(data.size());
    ASSERT_EQ(read(*channel, slab * kSlabBytes + 5 * kPage, &back), 0);
    EXPECT_EQ(back, data);
  }
}

TEST_F(Repairs, HaveAnExpectedEnd) {
  serve({8, 8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, 4 * kSlabBytes).ok());
  end_server(0, 4);
  uint64_t degraded = store_->servers().degraded();
  ASSERT_GT(degraded, 1u);
  EXPECT_TRUE(store_->repair().step());
  RepairStatus status = store_->repair_status();
  EXPECT_EQ(status.repaired, 1u);
  EXPECT_EQ(status.degraded, degraded - 1);
  EXPECT_GT(status.seconds_left, 0);
}

TEST_F(Repairs, SlabsThatWerePlacedWithFewerCopiesGetThemLater) {
  serve({8, 8}, true);
  connect(2);
  {
    LockGuard hold(store_->placement().lock());
    store_->placement().close_to_new_slabs(only(1));
  }
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  EXPECT_EQ(store_->servers().holders(0), only(0));
  EXPECT_FALSE(store_->repair().step());
  {
    LockGuard hold(store_->placement().lock());
    store_->placement().close_to_new_slabs(0);
  }
  repair_all();
  EXPECT_EQ(store_->servers().holders(0), only(0) | only(1));
}

TEST_F(Repairs, TakeMemoryAndGiveItBack) {
  serve({8, 8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  unsigned lost = static_cast<unsigned>(std::countr_zero(living(0)));
  auto before = reserved();
  end_server(lost, 1);
  repair_all();
  ServerSet holders = living(0);
  EXPECT_EQ(std::popcount(holders), 2);
  auto channel = open();
  ASSERT_EQ(discard(*channel, 0, kSlabBytes), 0);
  store_->unclaim(0, kSlabBytes);
  EXPECT_EQ(store_->servers().holders(0), 0u);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  FrameBytes back(kPage);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, FrameBytes(kPage));
}

TEST_F(Repairs, NeedAServerWithRoom) {
  serve({4, 4, 0}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  end_server(0, 1);
  EXPECT_FALSE(store_->repair().step());
  EXPECT_EQ(store_->servers().degraded(), 1u);
}

TEST_F(Repairs, FailWithTheirServer) {
  serve({8, 8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  FrameBytes data = numbered(100'000);
  ASSERT_EQ(write(*channel, 0, data), 0);
  unsigned lost = static_cast<unsigned>(std::countr_zero(living(0)));
  auto target = static_cast<unsigned>(std::countr_zero(store_->servers().all() & ~living(0)));
  end_server(lost, 1);
  servers_[target]->refuse_writes = ENOSPC;
  EXPECT_TRUE(store_->repair().step());
  EXPECT_EQ(std::popcount(store_->servers().usable()), 1);
  EXPECT_FALSE(store_->repair().step());
  FrameBytes back(data.size());
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, data);
  ASSERT_EQ(write(*channel, 0, data), 0);
}

TEST_F(Repairs, AServerReturnsFromEmpty) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  end_server(0, 1);
  store_->look_for_servers();
  EXPECT_EQ(store_->servers().count(), 2u);  // too soon
  EXPECT_FALSE(store_->servers().may_return(0, now_ns()));
  EXPECT_TRUE(store_->servers().may_return(0, now_ns() + 6'000'000'000));
}

TEST_F(Repairs, BeginWithoutARequestOfTheProgram) {
  serve({8, 8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  store_->start_threads();
  unsigned lost = static_cast<unsigned>(std::countr_zero(living(0)));
  servers_[lost]->stop();
  for (int i = 0; i < 6000 && (store_->servers().lost() == 0 || store_->servers().degraded() > 0); i++)
    os::nanosleep_ns(10'000'000);
  store_->stop_threads();
  EXPECT_EQ(store_->servers().lost(), only(lost));
  EXPECT_EQ(store_->servers().degraded(), 0u);
}

// Writers with a shadow copy, while servers end one after the other and copies are made anew.
class RepairStress : public Repairs {
 protected:
  static constexpr uint64_t kSlabs = 3, kPagesUsed = 192;  // of each slab, in three places
  static constexpr unsigned kWriters = 3;

  static uint64_t far_of(uint64_t page) {
    uint64_t slab = page / kPagesUsed, in_slab = page % kPagesUsed;
    return slab * kSlabBytes + in_slab % 64 * kPage + in_slab / 64 * (5 << 20);
  }
  static FrameBytes content(uint64_t page, uint64_t version) {
    FrameBytes data(version == 0 ? 0 : kPage);
    data.resize(kPage);
    for (size_t i = 0; version > 0 && i + 16 <= kPage; i += 512) {
      memcpy(data.data() + i, &page, 8);
      memcpy(data.data() + i + 8, &version, 8);
    }
    return data;
  }
  void write_pages(unsigned writer) {
    auto channel = open();
    std::mt19937_64 random(writer);
    for (uint64_t round = 1; !stop_; round++) {
      uint64_t page = random() % (slabs_ * kPagesUsed / kWriters) * kWriters + writer;
      bool discards = random() % 8 == 0;
      versions_[page] = discards ? 0 : round;
      int r = discards ? discard(*channel, far_of(page), kPage) : write(*channel, far_of(page), content(page, round));
      if (r != 0) errors_++;
      uint64_t other = random() % (slabs_ * kPagesUsed / kWriters) * kWriters + writer;
      FrameBytes back(kPage);
      if (read(*channel, far_of(other), &back) != 0) errors_++;
      if (back != content(other, versions_[other])) wrong_++;
      done_++;
    }
  }
  void start_writers(unsigned count) {
    for (unsigned w = 0; w < count; w++) writers_.emplace_back([this, w] { write_pages(w); });
  }
  void start() {
    start_writers(kWriters);
    store_->start_threads();
  }
  void stop() {
    stop_ = true;
    for (auto& writer : writers_) writer.join();
    store_->stop_threads();
    EXPECT_EQ(errors_, 0u);
    EXPECT_EQ(wrong_, 0u);
  }
  void wait_for_repair() {
    for (int i = 0; i < 6000 && (store_->servers().degraded() > 0 || store_->servers().lost() == 0); i++)
      os::nanosleep_ns(10'000'000);
    EXPECT_EQ(store_->servers().degraded(), 0u);
  }
  void check_copies() {
    for (uint64_t page = 0; page < slabs_ * kPagesUsed; page++) {
      FrameBytes right = content(page, versions_[page]);
      for_each(living(far_of(page) / kSlabBytes),
               [&](unsigned s) { EXPECT_TRUE(server(s).has(far_of(page), right)) << page; });
    }
  }
  // The one that has the number now.
  FakeServer& server(unsigned number) {
    auto is = [&](auto& server) { return server->address() == store_->servers()[number].address(); };
    return **std::find_if(servers_.begin(), servers_.end(), is);
  }

  uint64_t slabs_ = kSlabs;  // that are used
  uint64_t versions_[kSlabs * kPagesUsed] = {};
  std::vector<std::thread> writers_;
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> errors_{0}, wrong_{0}, done_{0};
};

TEST_F(RepairStress, NoWriteIsLost) {
  serve({8, 8, 8, 8, 8, 8}, true);
  for (unsigned s : {1u, 3u, 5u}) servers_[s]->delay_of_writes_ns = 1'000'000;  // their copies differ for some time
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabs * kSlabBytes).ok());
  start();
  for (unsigned server = 0; server < 4; server++) {
    os::nanosleep_ns(20'000'000);
    servers_[server]->stop();
    for (int i = 0; i < 500 && !(store_->servers().lost() & only(server)); i++) {
      if (living(0) != 0 && i > 100) break;  // it has no slab
      os::nanosleep_ns(1'000'000);
    }
    wait_for_repair();
  }
  stop();
  EXPECT_GT(done_, 1000u);
  check_copies();
}

// With three copies, two servers end while copies are being made.
TEST_F(RepairStress, LossesDuringARepairEndNothing) {
  serve({8, 8, 8, 8, 8}, true);
  connect(3);
  ASSERT_TRUE(store_->claim(0, kSlabs * kSlabBytes).ok());
  start();
  os::nanosleep_ns(20'000'000);
  for (unsigned server : {0u, 1u}) {
    servers_[server]->stop();
    os::nanosleep_ns(130'000'000);  // the repair has begun
  }
  wait_for_repair();
  stop();
  for (uint64_t slab = 0; slab < kSlabs; slab++) EXPECT_EQ(std::popcount(living(slab)), 3) << slab;
  check_copies();
}

// Forks abandon the copy that is being made, remove it, and begin again.
TEST_F(RepairStress, ForksInterruptARepair) {
  serve({8, 8, 8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabs * kSlabBytes).ok());
  end_server(0, kSlabs);
  store_->start_threads();
  for (int i = 0; i < 10; i++) {
    os::nanosleep_ns(5'000'000);
    auto ticket = store_->prepare_fork();
    EXPECT_TRUE(ticket.ok());
    for (uint64_t slab = 0; slab < kSlabs; slab++) EXPECT_EQ(store_->servers().servers_of(slab).joining, 0u);
    store_->forked_in_parent(*ticket);
  }
  wait_for_repair();
  store_->stop_threads();
}

// Servers of a pool that drain, while writers with a shadow copy go on.
class Drains : public RepairStress {
 protected:
  void connect_pool(unsigned replicas, size_t servers) {
    for (auto& server : servers_) addresses_.push_back(server->address());
    list(servers);
    Status s = try_connect(controller_.address(), replicas);
    ASSERT_TRUE(s.ok()) << s.text();
    ASSERT_TRUE(store_->claim(0, slabs_ * kSlabBytes).ok());
  }
  void list(size_t servers) {
    std::vector<std::pair<std::string, wire::ServerState>> all;
    for (size_t s = 0; s < servers; s++)
      all.emplace_back(addresses_[s], drained_ & only(s) ? wire::ServerState::kDraining : wire::ServerState::kUp);
    controller_.set(all);
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
  std::vector<std::string> addresses_;
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

// More servers come and go than a process knows numbers.
class Numbers : public Drains {
 protected:
  static constexpr unsigned kRounds = 3 * kMaxServers / 2;

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
    EXPECT_TRUE(store_->grow(0).ok());
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
