// Tests of what extents consist of: streams, the queue, sums, sets of pages. The pager with extents: ../extent_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "pager/extents/content_sums.h"
#include "pager/extents/extent_density.h"
#include "pager/extents/extent_queue.h"
#include "pager/extents/streams.h"

namespace farside::pager {
namespace {

constexpr auto kAllPassed = [](int64_t, int64_t) { return true; };

TEST(ExtentStreams, IsSureAfterThreeWindows) {
  ExtentStreams streams;
  PageIndex page = 1000;
  for (; page < 1000 + 192; page += 65) EXPECT_FALSE(streams.on_fault(page, kAllPassed).is_sure()) << page;
  EXPECT_TRUE(streams.on_fault(page, kAllPassed).is_sure());
  EXPECT_EQ(streams.current().direction, 1);
}

TEST(ExtentStreams, FollowsStreamsThatTakeTurnsInBothDirections) {
  ExtentStreams streams;
  for (unsigned i = 0; i < 5; i++) {
    streams.on_fault(10000 + i * 65, kAllPassed);
    streams.on_fault(50000 - i * 65, kAllPassed);
    streams.on_fault(i * 7919 + 100000, kAllPassed);  // a random access in between
  }
  EXPECT_TRUE(streams.on_fault(10000 + 5 * 65, kAllPassed).is_sure());
  ExtentStreams::Stream& backwards = streams.on_fault(50000 - 5 * 65, kAllPassed);
  EXPECT_TRUE(backwards.is_sure());
  EXPECT_EQ(backwards.direction, -1);
}

TEST(ExtentStreams, RandomFaultsAreNoStream) {
  ExtentStreams streams;
  uint32_t random = 1;
  for (int i = 0; i < 10000; i++) {
    random = random * 1664525 + 1013904223;
    EXPECT_FALSE(streams.on_fault(random >> 8, kAllPassed).is_sure()) << i;
  }
}

// All pages of a small block in random order: faults are near each other, but leave far pages behind.
TEST(ExtentStreams, RandomFaultsInASmallBlockAreNoStream) {
  constexpr size_t kBlock = 4096;
  ExtentStreams streams;
  std::vector<bool> is_near(kBlock);
  uint32_t random = 1;
  unsigned sure = 0;
  for (size_t near = 0; near < kBlock / 2;) {
    random = random * 1664525 + 1013904223;
    PageIndex page = (random >> 8) % kBlock;
    if (is_near[page]) continue;
    auto is_passed = [&](int64_t begin, int64_t end) {
      return std::all_of(is_near.begin() + begin, is_near.begin() + end, [](bool n) { return n; });
    };
    sure += streams.on_fault(page, is_passed).is_sure();
    is_near[page] = true;
    near++;
  }
  EXPECT_EQ(sure, 0u);
}

TEST(ExtentStreams, ContinuesAtTheNextExtentAndAtTheOneAfter) {
  ExtentStreams streams;
  for (PageIndex page = 0; page <= 260; page += 65) streams.on_fault(page, kAllPassed);
  ExtentStreams::pass_extent(streams.current(), 1);
  EXPECT_TRUE(streams.on_fault(2 * kExtentPages, kAllPassed).is_sure());
  ExtentStreams::pass_extent(streams.current(), 2);
  EXPECT_TRUE(streams.on_fault(4 * kExtentPages, kAllPassed).is_sure()) << "another thread completed extent 3";
}

TEST(ExtentStreams, RemembersThatTheProgramWrites) {
  ExtentStreams streams;
  for (PageIndex page = 0; page <= 260; page += 65) streams.on_fault(page, kAllPassed);
  ExtentStreams::pass_extent(streams.current(), 1);
  streams.record_write(7);
  EXPECT_FALSE(streams.current().writes);
  streams.record_write(1);
  EXPECT_TRUE(streams.current().writes);
}

class ExtentQueueTest : public testing::Test {
 protected:
  ExtentTable table_{1000 * kExtentPages};
  Frames frames_;
  ExtentQueue queue_{table_, frames_};
  ExtentIndex extent_ = 0;
  ExtentQueue::Kind kind_ = ExtentQueue::kMain;
};

TEST_F(ExtentQueueTest, KeepsARecentPartAndFindsTheOldestFirst) {
  frames_.set_limit(320 * kExtentPages);  // of which a thirty-second is kept: 10 extents
  for (ExtentIndex e = 0; e < 12; e++) queue_.push(e, ExtentQueue::kRecent);
  queue_.push(3, ExtentQueue::kRecent);  // it has an entry already
  EXPECT_EQ(queue_.size(ExtentQueue::kRecent), 12u);
  ASSERT_TRUE(queue_.pop_surplus(&extent_, &kind_));
  EXPECT_EQ(extent_, 0u);
  ASSERT_TRUE(queue_.pop_surplus(&extent_, &kind_));
  EXPECT_EQ(extent_, 1u);
  EXPECT_FALSE(queue_.pop_surplus(&extent_, &kind_));
  EXPECT_FALSE(queue_.pop(ExtentQueue::kMain, &extent_));
  queue_.push(0, ExtentQueue::kMain);
  ASSERT_TRUE(queue_.pop(ExtentQueue::kMain, &extent_));
  EXPECT_EQ(extent_, 0u);
}

TEST_F(ExtentQueueTest, KeepsMoreWhileExtentsReturnAtOnce) {
  frames_.set_limit(64 * kExtentPages);
  queue_.push(0, ExtentQueue::kRecent);
  size_t least = queue_.kept(ExtentQueue::kRecent);
  queue_.record_return(1'000'000);
  EXPECT_EQ(queue_.kept(ExtentQueue::kRecent), least);
  for (int i = 0; i < 100; i++) queue_.record_return(kExtentPages);
  EXPECT_EQ(queue_.kept(ExtentQueue::kRecent), 8u) << "at most an eighth";
  for (ExtentIndex e = 1; e < 999; e++) queue_.push(e, ExtentQueue::kRecent);
  EXPECT_EQ(queue_.kept(ExtentQueue::kRecent), least) << "forgotten after 30 times 32 extents";
}

TEST_F(ExtentQueueTest, KeepsNothingWhenNoStreamComes) {
  frames_.set_limit(64 * kExtentPages);
  queue_.push(0, ExtentQueue::kRecent);
  EXPECT_FALSE(queue_.pop_surplus(&extent_, &kind_));
  frames_.count_evicted(17 * kExtentPages);
  EXPECT_TRUE(queue_.pop_surplus(&extent_, &kind_));
}

TEST_F(ExtentQueueTest, KeepsAQuarterForNewExtents) {
  frames_.set_limit(64 * kExtentPages);
  for (ExtentIndex e = 0; e < 17; e++) queue_.push(e, ExtentQueue::kNew);
  queue_.push(20, ExtentQueue::kRecent);
  ASSERT_TRUE(queue_.pop_surplus(&extent_, &kind_));
  EXPECT_EQ(extent_, 0u);
  EXPECT_EQ(kind_, ExtentQueue::kNew);
  EXPECT_FALSE(queue_.pop_surplus(&extent_, &kind_));
  frames_.count_evicted(17 * kExtentPages);  // the program fills no more
  for (unsigned popped = 0; popped < 17; popped++) EXPECT_TRUE(queue_.pop_surplus(&extent_, &kind_));
  EXPECT_FALSE(queue_.pop_surplus(&extent_, &kind_));
}

class ExtentDensityTest : public testing::Test {
 protected:
  ExtentDensityTest() { frames_.set_limit(64 * kExtentPages); }
  void use(ExtentIndex extent, unsigned pages) {
    for (unsigned i = 0; i < pages; i++) density_.record_fetch(extent, 1);
  }
  void use_two() {
    for (ExtentIndex e : {0u, 1u}) use(e, ExtentDensity::kDensePages);
  }

  ExtentTable table_{1000 * kExtentPages};
  Frames frames_;
  ExtentDensity density_{table_, frames_};
};

TEST_F(ExtentDensityTest, ExtentsWhoseUseIsSeenComeWhole) {
  use(0, ExtentDensity::kDensePages);
  EXPECT_FALSE(density_.expects_use(0)) << "one may be chance";
  use_two();
  EXPECT_FALSE(density_.expects_use(2));
  density_.expects_use(0);  // may be a trial
  EXPECT_TRUE(density_.expects_use(1));
}

TEST_F(ExtentDensityTest, UseThatTakesLongIsSparse) {
  for (ExtentIndex e : {0u, 1u, 2u}) {
    use(e, ExtentDensity::kDensePages - 1);
    frames_.count_evicted(33 * kExtentPages);
    use(e, 1);
    EXPECT_FALSE(table_.has(e, ExtentTable::kDense));
  }
}

TEST_F(ExtentDensityTest, TrialsThatFailEndIt) {
  for (ExtentIndex e = 0; e < 100; e++) use(e, ExtentDensity::kDensePages);
  unsigned whole = 0;
  for (ExtentIndex e = 0; e < 100; e++) {
    if (!density_.expects_use(e)) continue;
    frames_.count_evicted(kExtentPages);
    whole++;
  }
  EXPECT_GT(whole, 32u);
  EXPECT_LE(whole, 3 * 33u) << "two trials, of half of near memory each, and what is between them";
  EXPECT_FALSE(density_.expects_use(99));
}

TEST_F(ExtentDensityTest, TrialsThatSucceedKeepIt) {
  unsigned whole = 0;
  for (int round = 0; round < 10; round++) {
    for (ExtentIndex e = 0; e < 100; e++) {
      bool is_whole = round > 0 && density_.expects_use(e);
      whole += is_whole;
      if (!is_whole) use(e, ExtentDensity::kDensePages);
      frames_.count_evicted(kExtentPages);
    }
  }
  EXPECT_GT(whole, 900u * 9 / 10);
}

TEST(ExtentTable, AdviceIsForgottenAndSumsAreDropped) {
  ExtentTable table(10 * kExtentPages);
  table.set(4, ExtentTable::kAdviseHuge);
  table.set(4, ExtentTable::kQueued);
  table.forget_advice(4);
  EXPECT_FALSE(table.has(4, ExtentTable::kAdviseHuge));
  EXPECT_TRUE(table.has(4, ExtentTable::kQueued));
  uint64_t* sums = ExtentTable::make_sums();
  table.set_sums(4, sums);
  EXPECT_EQ(table.sums(4), sums);
  table.drop_sums(4);
  EXPECT_EQ(table.sums(4), nullptr);
}

TEST(ContentSums, EveryBitCounts) {
  ContentSums::init();
  alignas(64) std::byte page[kPageSize];
  for (size_t i = 0; i < sizeof page; i++) page[i] = static_cast<std::byte>(i * 131 >> 3);
  uint64_t sum = ContentSums::of(page);
  for (size_t bit = 0; bit < kPageSize * 8; bit += 13) {
    page[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_NE(ContentSums::of(page), sum) << bit;
    page[bit / 8] ^= std::byte{1} << bit % 8;
  }
  EXPECT_EQ(ContentSums::of(page), sum);
}

TEST(ContentSums, FindsPagesOfZeros) {
  alignas(64) std::byte page[kPageSize] = {};
  EXPECT_TRUE(is_zero_page(page));
  for (size_t at : {size_t{0}, size_t{7}, size_t{8}, size_t{4095}}) {
    page[at] = std::byte{1};
    EXPECT_FALSE(is_zero_page(page)) << at;
    page[at] = std::byte{0};
  }
}

TEST(ExtentBits, CountsPages) {
  ExtentBits bits;
  EXPECT_EQ(bits.count(), 0u);
  for (unsigned i = 0; i < kExtentPages; i++) bits.set(i);
  EXPECT_TRUE(bits.is_full());
  EXPECT_TRUE(bits.has(511));
}

}  // namespace
}  // namespace farside::pager
