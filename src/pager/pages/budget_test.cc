// Tests of the budget that sets the limit of frames.
#include "pager/pages/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "pager/pages/test_support.h"

namespace farside::pager {
namespace {

TEST(BudgetTest, ASizeIsTheLimit) {
  Frames frames;
  Budget budget(frames, {64 * kMiB, 0}, 0);
  EXPECT_EQ(frames.limit(), 64 * kMiB / kPageSize);
  budget.populate(1'000'000);
  EXPECT_EQ(frames.limit(), 64 * kMiB / kPageSize);  // whatever the heap's size
  budget.set({32 * kMiB + kPageSize - 1, 0});
  EXPECT_EQ(frames.limit(), 32 * kMiB / kPageSize);
}

// The limit for so many near pages: some frames more are for those that evictors keep free, and for growth.
void expect_limit(const Frames& frames, uint64_t near) {
  EXPECT_GE(frames.target(), near + 2 * Frames::low_water_of(near));
  EXPECT_LE(frames.target(), near + near / 16 + 1024);
}

TEST(BudgetTest, AnAutomaticSizeIsWhatIsNotFar) {
  constexpr SizeOrShare kAuto = {0, SizeOrShare::kAutomatic};
  Frames frames;
  Budget budget(frames, kAuto, 0);
  EXPECT_TRUE(budget.is_automatic());
  budget.populate(100'000);
  EXPECT_GE(frames.limit(), 200'000u);  // nothing is evicted yet
  budget.set_far(40'000);
  expect_limit(frames, 60'000);
  for (int i = 0; i < 50'000; i++) budget.populate(1);  // first touches never wait for an eviction
  expect_limit(frames, 110'000);
  budget.set_far(149'000);
  expect_limit(frames, budget.least());
  budget.set({0, 0.5});
  EXPECT_EQ(frames.target(), 75'000u);
  budget.set_far(10);  // too late
  EXPECT_EQ(frames.target(), 75'000u);
}

TEST(BudgetTest, AnAutomaticSizeIsBoundedByTheMachine) {
  Frames frames;
  Budget budget(frames, {0, SizeOrShare::kAutomatic}, 0);
  budget.populate(100'000);
  budget.set_room(60'000);
  EXPECT_EQ(frames.target(), 60'000u);
  budget.set_far(10'000);
  EXPECT_EQ(frames.target(), 60'000u);
  budget.set_room(0);
  EXPECT_EQ(frames.target(), budget.least());
  budget.set({0, 1});
  EXPECT_GE(frames.target(), 200'000u);
}

TEST(BudgetTest, AnAutomaticSizeHasLimits) {
  Frames frames;
  Budget budget(frames, {64 * kMiB, SizeOrShare::kAutomatic, 32 * kMiB}, 0);
  budget.populate(100'000);
  EXPECT_EQ(frames.limit(), 64 * kMiB / kPageSize);
  budget.set_far(99'000);
  expect_limit(frames, 32 * kMiB / kPageSize);
}

TEST(BudgetTest, AShareFollowsThePeakOfPopulatedPages) {
  Frames frames;
  Budget budget(frames, {0, 0.25}, 0);
  EXPECT_EQ(frames.limit(), Budget::kMinPages);
  budget.populate(Budget::kMinPages);
  EXPECT_EQ(frames.limit(), Budget::kMinPages);  // a quarter is less than the minimum
  budget.populate(100'000 - Budget::kMinPages);
  EXPECT_EQ(frames.limit(), 25'000u);
  budget.depopulate(60'000);
  EXPECT_EQ(budget.populated(), 40'000u);
  EXPECT_EQ(budget.populated_peak(), 100'000u);
  EXPECT_EQ(frames.limit(), 25'000u);  // the peak counts
  budget.populate(59'999);
  EXPECT_EQ(frames.limit(), 25'000u);
  budget.populate(4001);
  EXPECT_EQ(budget.populated_peak(), 104'000u);
  EXPECT_EQ(frames.limit(), 26'000u);
}

TEST(BudgetTest, TheMinimumEndsWhereTheShareIsMore) {
  Frames frames;
  Budget budget(frames, {0, 0.5}, 0);
  budget.populate(2 * Budget::kMinPages);
  EXPECT_EQ(frames.limit(), Budget::kMinPages);
  budget.populate(2);
  EXPECT_EQ(frames.limit(), Budget::kMinPages + 1);
}

TEST(BudgetTest, AShareOfAllIsNoLimit) {
  Frames frames;
  Budget budget(frames, {0, 1.0}, 0);
  for (uint64_t pages : {1u, 100u, 10'000u, 1'000'000u}) {
    budget.populate(pages);
    ASSERT_TRUE(frames.try_take(pages));
    EXPECT_TRUE(frames.plentiful()) << pages;  // so nothing is evicted
  }
}

TEST(BudgetTest, SharesAndSizesReplaceEachOther) {
  Frames frames;
  Budget budget(frames, {64 * kMiB, 0}, 0);
  budget.populate(100'000);
  budget.set({0, 0.5});
  EXPECT_EQ(frames.limit(), 50'000u);
  budget.set({128 * kMiB, 0});
  budget.populate(900'000);
  EXPECT_EQ(frames.limit(), 128 * kMiB / kPageSize);  // it does not grow any more
}

TEST(BudgetTest, TablesOfThePeakAreTakenOff) {
  constexpr uint64_t kPages = 10'000, kEntry = 24;
  Frames frames;
  Budget budget(frames, {256 * kMiB, 0}, kEntry);
  uint64_t empty = budget.metadata_bytes();
  EXPECT_EQ(empty, near_bytes());
  budget.populate(kPages);
  EXPECT_EQ(budget.metadata_bytes(), empty + align_up(kPages * kEntry, kPageSize));
  budget.depopulate(kPages);
  EXPECT_EQ(budget.metadata_bytes(), empty + align_up(kPages * kEntry, kPageSize));  // touched pages of tables stay
  budget.update_metadata();
  EXPECT_EQ(take_all(frames), 256 * kMiB / kPageSize - budget.metadata_bytes() / kPageSize);
}

TEST(BudgetTest, WhatTheNearAllocatorHoldsIsTakenOff) {
  constexpr uint64_t kBytes = 8 * kMiB;
  Frames frames;
  Budget budget(frames, {64 * kMiB, 0}, 0);
  uint64_t before = take_all(frames);
  frames.give(before);
  void* memory = near_alloc(kBytes);
  budget.update_metadata();
  EXPECT_EQ(take_all(frames), before - kBytes / kPageSize);
  near_free(memory, kBytes);
  budget.update_metadata();
  EXPECT_EQ(take_all(frames), kBytes / kPageSize);
}

TEST(BudgetTest, NoPopulatedPageIsLostAmongThreads) {
  constexpr unsigned kThreads = 3, kRounds = 200'000;
  Frames frames;
  Budget budget(frames, {64 * kMiB, 0}, 0);
  std::atomic<unsigned> fell{0};
  auto work = [&] {
    uint64_t seen = 0;
    for (unsigned i = 0; i < kRounds; i++) {
      budget.populate(3);
      uint64_t peak = budget.populated_peak();
      fell += peak < seen;
      seen = peak;
      budget.depopulate(1);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(work);
  for (auto& t : threads) t.join();
  EXPECT_EQ(budget.populated(), 2u * kThreads * kRounds);
  EXPECT_EQ(fell, 0u);  // a peak never falls
  EXPECT_GT(budget.populated_peak(), budget.populated());
  EXPECT_LE(budget.populated_peak(), budget.populated() + kThreads);
}

}  // namespace
}  // namespace farside::pager
