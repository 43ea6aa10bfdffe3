// Tests of frames and of the spare frames of a thread.
#include "pager/pages/frames.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "pager/pages/test_support.h"

namespace farside::pager {
namespace {

constexpr uint64_t kMinUsable = 128;              // frames that stay usable however large the metadata
constexpr uint64_t kForever = 3'600'000'000'000;  // a lost wake-up exceeds the test's time limit

TEST(FramesTest, TakesUpToTheLimitAndNoMore) {
  Frames frames;
  EXPECT_FALSE(frames.try_take(1));  // no limit was set
  frames.set_limit(1000);
  EXPECT_FALSE(frames.try_take(1001));
  EXPECT_EQ(frames.used(), 0u);  // a refused take changes nothing
  EXPECT_EQ(frames.peak(), 0u);
  EXPECT_TRUE(frames.try_take(1000));
  EXPECT_FALSE(frames.try_take(1));
  EXPECT_EQ(frames.used(), 1000u);
  frames.give(1);
  EXPECT_FALSE(frames.try_take(2));
  EXPECT_TRUE(frames.try_take(1));
  EXPECT_EQ(frames.used(), 1000u);
}

TEST(FramesTest, ThePeakIsTheMostThatWasInUse) {
  Frames frames;
  frames.set_limit(1000);
  ASSERT_TRUE(frames.try_take(700));
  frames.give(600);
  ASSERT_TRUE(frames.try_take(300));
  EXPECT_EQ(frames.peak(), 700u);
  EXPECT_FALSE(frames.try_take(900));
  EXPECT_EQ(frames.peak(), 700u);
  frames.force_take(900);
  EXPECT_EQ(frames.peak(), 1300u);
}

TEST(FramesTest, WhatIsReadyIsUsedButHoldsNoPage) {
  Frames frames;
  frames.set_limit(1000);
  ASSERT_TRUE(frames.try_take(100));
  EXPECT_FALSE(frames.try_take_ready(512, 389));
  ASSERT_TRUE(frames.try_take_ready(512, 388));
  EXPECT_FALSE(frames.try_take(389));
  EXPECT_EQ(frames.used(), 612u);
  EXPECT_EQ(frames.held(), 100u);
  EXPECT_EQ(frames.peak(), 100u);
  frames.use_ready(512);
  EXPECT_EQ(frames.held(), 612u);
  EXPECT_EQ(frames.peak(), 612u);
  frames.put_ready(512);
  EXPECT_EQ(frames.held(), 100u);
  frames.give_ready(512);
  EXPECT_EQ(frames.used(), 100u);
  EXPECT_EQ(frames.held(), 100u);
  EXPECT_EQ(frames.peak(), 612u);
}

TEST(FramesTest, MetadataIsTakenOffTheLimit) {
  Frames frames;
  frames.set_limit(1000);
  frames.set_reserved(300);
  EXPECT_EQ(take_all(frames), 700u);
  frames.set_reserved(200);
  EXPECT_EQ(take_all(frames), 100u);
  EXPECT_EQ(frames.limit(), 1000u);
}

TEST(FramesTest, SomeFramesStayHoweverLargeTheMetadata) {
  auto usable = [](uint64_t limit, uint64_t reserved) {
    Frames frames;
    frames.set_limit(limit);
    frames.set_reserved(reserved);
    return take_all(frames);
  };
  EXPECT_EQ(usable(1000, 1000 - kMinUsable - 1), kMinUsable + 1);
  EXPECT_EQ(usable(1000, 1000 - kMinUsable), kMinUsable);
  EXPECT_EQ(usable(1000, 1000), kMinUsable);
  EXPECT_EQ(usable(1000, 5000), kMinUsable);
  EXPECT_EQ(usable(kMinUsable, 0), kMinUsable);
  EXPECT_EQ(usable(100, 0), 100u);  // never more than the limit
  EXPECT_EQ(usable(100, 50), 100u);
}

TEST(FramesTest, ForkMayTakeBeyondTheLimit) {
  Frames frames;
  frames.set_limit(500);
  ASSERT_TRUE(frames.try_take(500));
  frames.force_take(50);
  EXPECT_EQ(frames.used(), 550u);
  EXPECT_FALSE(frames.try_take(1));
  EXPECT_TRUE(frames.low());
  EXPECT_FALSE(frames.plentiful());
  frames.give(50);
  EXPECT_FALSE(frames.try_take(1));
  frames.give(1);
  EXPECT_TRUE(frames.try_take(1));
}

// Several threads take and give frames: in bulk, singly and through spare frames. `held` never exceeds `used`.
TEST(FramesTest, ThreadsTogetherNeverHoldMoreThanTheLimit) {
  constexpr uint64_t kLimit = 300;
  constexpr unsigned kThreads = 4;
  Frames frames;
  frames.set_limit(kLimit);
  std::atomic<uint64_t> held{0}, most{0}, refused{0};
  auto hold = [&](uint64_t pages) {
    uint64_t now = held.fetch_add(pages) + pages, old = most.load();
    while (old < now && !most.compare_exchange_weak(old, now)) {}
  };
  auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    SpareFrames spare;
    uint64_t mine = 0;
    for (int i = 0; i < 50'000; i++) {
      uint64_t pages = random() % 2 ? 1 : 1 + random() % 100;
      bool took = random() % 2 && pages == 1 ? frames.try_take(spare, kThreads) : frames.try_take(pages);
      if (took) {
        hold(pages);
        mine += pages;
        continue;
      }
      refused++;
      uint64_t back = mine > 0 ? 1 + random() % mine : 0;
      held -= back;
      mine -= back;
      frames.give(back + spare.take_all());
    }
    held -= mine;
    frames.give(mine + spare.take_all());
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(work, t);
  for (auto& t : threads) t.join();
  EXPECT_LE(most, kLimit);
  EXPECT_LE(frames.peak(), kLimit);
  EXPECT_GE(frames.peak(), most);
  EXPECT_GT(refused, 0u);  // otherwise the test had no contention
  EXPECT_EQ(frames.used(), 0u);
  EXPECT_EQ(take_all(frames), kLimit);
}

TEST(SpareFramesTest, AreTakenOneByOneOrTogether) {
  SpareFrames spare;
  EXPECT_FALSE(spare.try_take());
  EXPECT_EQ(spare.take_all(), 0u);
  spare.put(3);
  spare.put(2);
  EXPECT_EQ(spare.count(), 5u);
  EXPECT_TRUE(spare.try_take());
  EXPECT_EQ(spare.take_all(), 4u);
  EXPECT_FALSE(spare.try_take());
  EXPECT_EQ(spare.count(), 0u);
}

TEST(SpareFramesTest, NoneIsLostOrDuplicatedWhenOthersTakeThem) {
  constexpr uint32_t kRounds = 500'000;
  SpareFrames spare;
  std::atomic<bool> done{false};
  std::atomic<uint64_t> taken{0};
  auto take_away = [&](bool together) {
    uint64_t mine = 0;
    while (!done) mine += together ? spare.take_all() : spare.try_take();
    taken += mine;
  };
  std::thread first([&] { take_away(true); }), second([&] { take_away(false); });
  uint64_t mine = 0;
  for (uint32_t i = 0; i < kRounds; i++) {
    spare.put(3);
    mine += spare.try_take();
    mine += spare.try_take();
  }
  done = true;
  first.join();
  second.join();
  EXPECT_EQ(mine + taken + spare.take_all(), uint64_t{3} * kRounds);
}

TEST(SpareFramesTest, ARefillLeavesTheSharedCounterAloneForTheNextFaults) {
  Frames frames;
  frames.set_limit(1000);
  SpareFrames spare;
  ASSERT_TRUE(frames.try_take(spare, 1));
  uint64_t bulk = frames.used();
  EXPECT_EQ(bulk, 32u);
  EXPECT_EQ(spare.count(), bulk - 1);
  for (uint64_t i = 1; i < bulk; i++) ASSERT_TRUE(frames.try_take(spare, 1));
  EXPECT_EQ(frames.used(), bulk);  // all of these were spare frames
  ASSERT_TRUE(frames.try_take(spare, 1));
  EXPECT_GT(frames.used(), bulk);
}

TEST(SpareFramesTest, AllThreadsTogetherKeepNoMoreThanAnEighthOfWhatIsFree) {
  for (uint64_t free : {1u, 7u, 8u, 9u, 64u, 100u, 1000u, 100'000u}) {
    for (size_t threads : {1u, 2u, 7u, 64u}) {
      Frames frames;
      frames.set_limit(free);
      std::vector<SpareFrames> spares(threads);
      uint64_t kept = 0;
      for (auto& spare : spares) {
        bool some_left = frames.used() < free;
        EXPECT_EQ(frames.try_take(spare, threads), some_left) << free;
        kept += spare.count();
      }
      EXPECT_LE(kept, free / 8) << free << " frames, " << threads << " threads";
      EXPECT_LE(frames.used(), free);
    }
  }
}

TEST(SpareFramesTest, TheLastFramesAreTakenOneByOne) {
  Frames frames;
  frames.set_limit(200);
  SpareFrames spare;
  uint64_t taken = 0;
  while (frames.try_take(spare, 1)) taken++;
  EXPECT_EQ(taken, 200u);
  EXPECT_EQ(spare.count(), 0u);
  EXPECT_EQ(frames.used(), 200u);
}

TEST(FramesTest, AHigherLimitAppliesAtOnce) {
  Frames frames;
  frames.set_limit(500);
  ASSERT_TRUE(frames.try_take(500));
  frames.set_limit(800);
  EXPECT_EQ(frames.limit(), 800u);
  EXPECT_EQ(take_all(frames), 300u);
}

TEST(FramesTest, ALowerLimitAppliesAtOnceIfUsageIsBelowIt) {
  Frames frames;
  frames.set_limit(1000);
  frames.set_reserved(100);
  ASSERT_TRUE(frames.try_take(200));
  frames.set_limit(300);  // 200 in use and 100 of metadata
  EXPECT_EQ(frames.limit(), 300u);
  EXPECT_TRUE(frames.plentiful() || frames.missing() > 0);
  frames.set_limit(299);
  EXPECT_EQ(frames.target(), 299u);
  EXPECT_EQ(frames.limit(), 300u);  // not below what is in use
}

TEST(FramesTest, HalfOfTheReleasedFramesLowersTheLimitAndHalfIsForWaiters) {
  Frames frames;
  frames.set_limit(2000);
  ASSERT_TRUE(frames.try_take(2000));
  frames.set_limit(500);
  EXPECT_EQ(frames.target(), 500u);
  EXPECT_EQ(frames.limit(), 2000u);
  EXPECT_FALSE(frames.try_take(1));
  frames.give(100);
  EXPECT_EQ(frames.limit(), 1950u);
  EXPECT_FALSE(frames.try_take(51));
  EXPECT_TRUE(frames.try_take(50));
  EXPECT_FALSE(frames.try_take(1));
}

TEST(FramesTest, AShrinkingLimitKeepsEvictorsRunningUntilItIsReached) {
  Frames frames;
  frames.set_limit(2000);
  frames.set_reserved(40);
  ASSERT_TRUE(frames.try_take(1900));
  frames.set_limit(600);
  uint64_t before = frames.limit();
  while (frames.limit() > 600) {
    EXPECT_TRUE(frames.low());
    EXPECT_TRUE(frames.is_below(5));
    EXPECT_FALSE(frames.plentiful());
    ASSERT_GE(frames.used(), 10u) << "the limit is not reached although nothing is in use";
    frames.give(10);
    EXPECT_LE(frames.limit(), before - 5);
    EXPECT_GE(frames.limit(), 600u);
    EXPECT_GE(frames.limit(), frames.used());
    before = frames.limit();
  }
  // If no frames are taken, the limit follows the frames in use, with a few free.
  EXPECT_GE(frames.used(), 250u);
  EXPECT_EQ(frames.limit(), 600u);
  EXPECT_EQ(frames.target(), 600u);
  EXPECT_FALSE(frames.low());
}

TEST(FramesTest, ALimitThatIsRaisedWhileItShrinksStopsShrinking) {
  Frames frames;
  frames.set_limit(1000);
  ASSERT_TRUE(frames.try_take(900));
  frames.set_limit(100);
  frames.give(10);
  frames.set_limit(950);
  EXPECT_EQ(frames.limit(), 950u);
  EXPECT_EQ(frames.target(), 950u);
  frames.give(500);
  EXPECT_EQ(frames.limit(), 950u);
  EXPECT_FALSE(frames.low());
}

TEST(FramesTest, LowWaterIsASixtyFourthWithinBounds) {
  auto low_water = [](uint64_t limit) {
    Frames frames;
    frames.set_limit(limit);
    return frames.low_water();
  };
  EXPECT_EQ(low_water(4096 * 64), 4096u);
  EXPECT_EQ(low_water(4096 * 64 + 64), 4096u);
  EXPECT_EQ(low_water(uint64_t{1} << 30), 4096u);
  EXPECT_EQ(low_water(128 * 64), 128u);
  EXPECT_EQ(low_water(64 * 64), 64u);
  EXPECT_EQ(low_water(64 * 64 - 1), 64u);  // not less than 64
  EXPECT_EQ(low_water(256), 64u);
  EXPECT_EQ(low_water(200), 50u);  // but no more than a quarter
  EXPECT_EQ(low_water(kMinUsable), kMinUsable / 4);
}

// At every budget: an idle pager has enough free frames, otherwise evictors would never stop; and a full one has enough
// after evicting exactly the missing frames.
TEST(FramesTest, WaterMarksAreReachableAtEveryBudget) {
  for (uint64_t limit = 1; limit < 100'000; limit += 1 + limit / 50) {
    Frames frames;
    frames.set_limit(limit);
    EXPECT_FALSE(frames.low()) << limit;
    EXPECT_FALSE(frames.scarce()) << limit;
    EXPECT_TRUE(frames.plentiful()) << limit;
    EXPECT_EQ(frames.missing(), 0u) << limit;
    ASSERT_TRUE(frames.try_take(limit));
    uint64_t missing = frames.missing();
    EXPECT_EQ(missing, 2 * frames.low_water()) << limit;
    if (limit < 4) continue;  // too few for any mark
    EXPECT_TRUE(frames.low()) << limit;
    EXPECT_FALSE(frames.plentiful()) << limit;
    ASSERT_LE(missing, limit);
    frames.give(missing - 1);
    EXPECT_FALSE(frames.plentiful()) << limit;
    frames.give(1);
    EXPECT_TRUE(frames.plentiful()) << limit;
    EXPECT_FALSE(frames.low()) << limit;  // so idle evictors do not start again at once
  }
}

TEST(FramesTest, LevelsAreCrossedAtTheirFreeFrames) {
  constexpr uint64_t kLimit = 16 * 1024;
  Frames frames;
  frames.set_limit(kLimit);
  uint64_t mark = frames.low_water();
  ASSERT_EQ(mark, 256u);
  for (unsigned level = 0; level < 4; level++, mark /= 2) {
    ASSERT_TRUE(frames.try_take(kLimit - mark - frames.used()));
    EXPECT_FALSE(frames.is_below(level)) << level;
    EXPECT_EQ(frames.low(), level > 0);
    EXPECT_EQ(frames.scarce(), level > 2);  // a quarter is left at level 2
    ASSERT_TRUE(frames.try_take(1));
    EXPECT_TRUE(frames.is_below(level)) << level;
    EXPECT_TRUE(frames.low());
    EXPECT_EQ(frames.scarce(), level >= 2);
  }
}

TEST(FramesTest, MetadataCountsForTheWaterMarks) {
  Frames frames;
  frames.set_limit(16 * 1024);
  ASSERT_TRUE(frames.try_take(8 * 1024));
  EXPECT_TRUE(frames.plentiful());
  frames.set_reserved(8 * 1024 - 100);
  EXPECT_TRUE(frames.low());
  EXPECT_EQ(frames.missing(), 2 * frames.low_water() - 100);
}

TEST(FramesTest, GivingWakesWaiters) {
  Frames frames;
  frames.set_limit(10);
  ASSERT_TRUE(frames.try_take(10));
  uint32_t seen = frames.released().value();
  EXPECT_FALSE(frames.try_take(1));
  EXPECT_EQ(frames.released().value(), seen);  // a take wakes no thread
  std::thread waiter([&] { frames.released().wait(seen, kForever); });
  frames.give(1);
  waiter.join();
  EXPECT_NE(frames.released().value(), seen);
}

// More threads than frames; each sleeps while there is none. The test ends only if no wake-up is lost.
TEST(FramesTest, NoWakeUpIsLost) {
  Frames frames;
  frames.set_limit(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; i++) {
        for (;;) {
          uint32_t seen = frames.released().value();
          if (frames.try_take(1)) break;
          frames.released().wait(seen, kForever);
        }
        frames.give(1);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(frames.used(), 0u);
  EXPECT_LE(frames.peak(), 2u);
}

TEST(FramesTest, EvictedPagesAreCounted) {
  Frames frames;
  EXPECT_EQ(frames.evicted(), 0u);
  frames.count_evicted(5);
  frames.count_evicted(7);
  EXPECT_EQ(frames.evicted(), 12u);
}

}  // namespace
}  // namespace farside::pager
