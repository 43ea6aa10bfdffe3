// Lost copies are made anew while slabs are written, discarded, freed and forked. The protocol is checked by
// tests/model/repair_model_test.cc; here its implementation is compared with a shadow copy.
#include "remote/repair.h"

#include "remote/repair_fixture.h"

namespace farside::remote {
namespace {

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

}  // namespace
}  // namespace farside::remote
