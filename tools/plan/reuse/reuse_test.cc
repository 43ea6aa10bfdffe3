#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>

#include "tools/plan/reuse/near_model.h"
#include "tools/plan/reuse/shards.h"

namespace farside::plan {
namespace {

// A list with the most recently used key in front: slow and evidently correct.
class PlainStack {
 public:
  uint64_t access(uint64_t key) {
    auto found = std::ranges::find(keys_, key);
    uint64_t distance =
        found == keys_.end() ? StackDistance::kFirst : static_cast<uint64_t>(std::distance(keys_.begin(), found));
    forget(key);
    keys_.push_front(key);
    return distance;
  }
  void forget(uint64_t key) { keys_.remove(key); }

 private:
  std::list<uint64_t> keys_;
};

TEST(StackDistanceTest, EqualsThatOfAPlainStack) {
  std::mt19937_64 random(1);
  StackDistance fast;
  PlainStack plain;
  for (int i = 0; i < 20000; i++) {
    uint64_t key = random() % (random() % 2 ? 20 : 400);
    if (random() % 50 == 0) {
      fast.forget(key);
      plain.forget(key);
    } else {
      ASSERT_EQ(fast.access(key), plain.access(key)) << i;
    }
  }
}

TEST(DistanceCountsTest, SmallDistancesAreExactAndLargeOnesAlmost) {
  DistanceCounts counts;
  for (uint64_t distance = 0; distance < 10000; distance++) counts.add(distance, 1);
  for (double keys : {0, 1, 127, 128}) EXPECT_DOUBLE_EQ(counts.beyond(keys), 10000 - keys);
  for (double keys : {129, 1000, 5001, 9990}) EXPECT_NEAR(counts.beyond(keys), 10000 - keys, keys / 128) << keys;
  EXPECT_EQ(counts.beyond(20000), 0);
}

// Numbers from 0 to n - 1; the k-th has a probability proportional to 1 / (k + 1)^s.
class Zipf {
 public:
  Zipf(size_t n, double s) {
    double sum = 0;
    for (size_t k = 0; k < n; k++) up_to_.push_back(sum += std::pow(static_cast<double>(k + 1), -s));
  }
  uint64_t operator()(std::mt19937_64& random) {
    double at = std::uniform_real_distribution<double>(0, up_to_.back())(random);
    return static_cast<uint64_t>(std::ranges::lower_bound(up_to_, at) - up_to_.begin());
  }

 private:
  std::vector<double> up_to_;
};

// Compares Shards with all distances: exact if everything fits into the sample, otherwise within three intervals or two
// percent of the accesses.
void expect_curve(const std::vector<uint64_t>& sequence, size_t blocks) {
  StackDistance stack;
  DistanceCounts exact;
  Shards all(2 * blocks), sampled(blocks / 8);
  for (uint64_t block : sequence) {
    uint64_t distance = stack.access(block);
    if (distance != StackDistance::kFirst) exact.add(distance, 1);
    all.access(block);
    sampled.access(block);
  }
  EXPECT_EQ(all.rate(), 1);
  EXPECT_LT(sampled.rate(), 0.3);
  EXPECT_NEAR(sampled.blocks(), static_cast<double>(stack.keys()), 0.1 * static_cast<double>(stack.keys()));
  auto accesses = static_cast<double>(sequence.size());
  for (int percent = 5; percent <= 100; percent += 5) {
    double size = static_cast<double>(blocks) * percent / 100, truth = exact.beyond(size);
    Estimate whole = all.misses(size), estimate = sampled.misses(size);
    EXPECT_DOUBLE_EQ(whole.value, truth);
    EXPECT_EQ(whole.error, 0);
    EXPECT_NEAR(estimate.value, truth, std::max(3 * kInterval95 * estimate.error, 0.02 * accesses)) << percent << "%";
  }
}

TEST(ShardsTest, UniformAccessesMissByTheAbsentShare) {
  constexpr size_t kBlocks = 4096;
  std::mt19937_64 random(2);
  std::vector<uint64_t> sequence;
  for (size_t i = 0; i < 60 * kBlocks; i++) sequence.push_back(random() % kBlocks);
  expect_curve(sequence, kBlocks);
  Shards shards(kBlocks / 4);
  for (uint64_t block : sequence) shards.access(block);
  for (double share : {0.1, 0.38, 0.9}) {
    EXPECT_NEAR(shards.misses(share * kBlocks).value / shards.accesses(), 1 - share, 0.05) << share;
  }
}

TEST(ShardsTest, ZipfAccessesHaveTheExactCurve) {
  constexpr size_t kBlocks = 8192;
  std::mt19937_64 random(3);
  Zipf zipf(kBlocks, 0.9);
  std::vector<uint64_t> sequence;
  for (size_t i = 0; i < 40 * kBlocks; i++) sequence.push_back(zipf(random));
  expect_curve(sequence, kBlocks);
}

TEST(ShardsTest, ALoopAlwaysMissesUnlessAllOfItFits) {
  constexpr size_t kBlocks = 10000, kRounds = 5;
  Shards all(kBlocks), sampled(kBlocks / 10);
  for (size_t i = 0; i < kRounds * kBlocks; i++) {
    for (Shards* shards : {&all, &sampled}) {
      shards->access(i % kBlocks);
      shards->again(7);
    }
  }
  EXPECT_EQ(all.accesses(), 8.0 * kRounds * kBlocks);
  EXPECT_NEAR(all.misses(kBlocks - 1).value, (kRounds - 1) * kBlocks, 1);
  EXPECT_EQ(all.misses(kBlocks).value, 0);
  EXPECT_NEAR(sampled.misses(0.8 * kBlocks).value, (kRounds - 1) * kBlocks, 0.1 * (kRounds - 1) * kBlocks);
  EXPECT_LT(sampled.misses(1.2 * kBlocks).value, 0.02 * kRounds * kBlocks);
}

// Twenty samples: about nineteen of the intervals should contain the true value.
TEST(ShardsTest, TheIntervalContainsTheTrueValueAlmostAlways) {
  constexpr size_t kBlocks = 4096, kTrials = 20;
  unsigned held = 0;
  for (uint64_t trial = 0; trial < kTrials; trial++) {
    std::mt19937_64 random(100 + trial);
    Shards shards(512);
    DistanceCounts exact;
    StackDistance stack;
    Zipf zipf(kBlocks, 0.6);
    for (size_t i = 0; i < 20 * kBlocks; i++) {
      uint64_t block = zipf(random) + trial * 1'000'000;  // different blocks are sampled in each trial
      uint64_t distance = stack.access(block);
      if (distance != StackDistance::kFirst) exact.add(distance, 1);
      shards.access(block);
    }
    Estimate misses = shards.misses(0.4 * kBlocks);
    EXPECT_GT(misses.error, 0);
    held += std::abs(misses.value - exact.beyond(0.4 * kBlocks)) <= kInterval95 * misses.error;
  }
  EXPECT_GE(held, 15u);
}

constexpr size_t kPages = 16384;

TEST(NearModelTest, AScanIsAStreamAndFetchesAbsentPages) {
  NearModel model({0.25, 1}, 2 * kPages);
  for (int round = 0; round < 3; round++) {
    for (uint64_t page = 0; page < kPages; page++) model.access(page, false);
  }
  NearEvents few = model.events(0), all = model.events(1);
  EXPECT_EQ(few[kFirstTouch] + few[kStreamFirstTouch], kPages);
  EXPECT_GT(few[kStreamFetch], 1.5 * kPages);  // a part of the pages stays near
  EXPECT_LT(few[kStreamFetch], 1.7 * kPages);
  EXPECT_LT(few[kFetch], 50);
  EXPECT_EQ(all[kFetch] + all[kStreamFetch] + all[kDirtyEviction], 0);
  EXPECT_EQ(model.pages(), kPages);
}

TEST(NearModelTest, ASmallHeapStaysNearBecauseTheBudgetHasAMinimum) {
  NearModel model({0.05}, 2 * kPages);
  for (int round = 0; round < 3; round++) {
    for (uint64_t page = 0; page < kPages / 16; page++) model.access(page, false);
  }
  EXPECT_EQ(model.events(0)[kFetch] + model.events(0)[kStreamFetch], 0);
}

TEST(NearModelTest, RandomReadsMissByTheAbsentShare) {
  NearModel model({0.5}, 2 * kPages);
  std::mt19937_64 random(4);
  for (uint64_t page = 0; page < kPages; page++) model.access(page, true);
  NearEvents before = model.events(0);
  constexpr size_t kReads = 30 * kPages;
  for (size_t i = 0; i < kReads; i++) model.access(random() % kPages, false);
  NearEvents after = model.events(0);
  EXPECT_NEAR((after[kFetch] + after[kStreamFetch] - before[kFetch] - before[kStreamFetch]) / kReads, 0.52,
              0.02);  // more than half, because evictors keep frames free
  EXPECT_LT(after[kStreamFetch], 0.1 * after[kFetch]);
  EXPECT_LE(after[kDirtyEviction], kPages);  // the pages of the first loop, and none since
}

TEST(NearModelTest, AWriteAfterAReadCausesOneFaultOnce) {
  NearModel model({1}, 2 * kPages);
  model.access(1, true);
  model.access(2, false);
  model.access(2, true);
  EXPECT_EQ(model.events(0)[kUpgrade], 0);  // first touches map writable
  NearModel small({0.5}, 2 * kPages);
  for (int round = 0; round < 4; round++) {
    for (uint64_t page = 0; page < kPages; page++) {
      small.access(page, false);
      small.access(page, true);
    }
  }
  // Pages that stay near since their first touch are writable, and the others are fetched writable from the second time
  // on.
  EXPECT_NEAR(small.events(0)[kUpgrade], 0.55 * kPages, 0.05 * kPages);
}

TEST(NearModelTest, ASampledModelHasAboutTheCostOfTheWholeOne) {
  NearModel whole({0.25, 0.5}, 2 * kPages), sampled({0.25, 0.5}, kPages / 4);
  std::mt19937_64 random(5);
  Zipf zipf(kPages, 0.7);
  for (size_t i = 0; i < 40 * kPages; i++) {
    uint64_t page = zipf(random) * 2654435761u % kPages;
    bool write = random() % 4 == 0;
    whole.access(page, write);
    sampled.access(page, write);
  }
  constexpr NearEvents kPrices = {1, 1, 4, 2, 3, 1};
  for (size_t share : {0, 1}) {
    Estimate truth = whole.cost(share, kPrices), estimate = sampled.cost(share, kPrices);
    EXPECT_EQ(truth.error, 0);
    EXPECT_NEAR(estimate.value, truth.value, std::max(3 * kInterval95 * estimate.error, 0.02 * truth.value)) << share;
  }
}

}  // namespace
}  // namespace farside::plan
