// Tests of what huge pages consist of: streams, the queue, sums, sets of pages. The pager with huge pages:
// ../huge_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "pager/huge/content_sums.h"
#include "pager/huge/huge_density.h"
#include "pager/huge/huge_queue.h"
#include "pager/huge/streams.h"

namespace farside::pager {
namespace {

constexpr auto kAllPassed = [](int64_t, int64_t) { return true; };

TEST(HugeStreams, IsSureAfterThreeWindows) {
  HugeStreams streams;
  PageIndex page = 1000;
  for (; page < 1000 + 192; page += 65) EXPECT_FALSE(streams.on_fault(page, kAllPassed).is_sure()) << page;
  EXPECT_TRUE(streams.on_fault(page, kAllPassed).is_sure());
  EXPECT_EQ(streams.current().direction, 1);
}

TEST(HugeStreams, FollowsStreamsThatTakeTurnsInBothDirections) {
  HugeStreams streams;
  for (unsigned i = 0; i < 5; i++) {
    streams.on_fault(10000 + i * 65, kAllPassed);
    streams.on_fault(50000 - i * 65, kAllPassed);
    streams.on_fault(i * 7919 + 100000, kAllPassed);  // a random access in between
  }
  EXPECT_TRUE(streams.on_fault(10000 + 5 * 65, kAllPassed).is_sure());
  HugeStreams::Stream& backwards = streams.on_fault(50000 - 5 * 65, kAllPassed);
  EXPECT_TRUE(backwards.is_sure());
  EXPECT_EQ(backwards.direction, -1);
}

TEST(HugeStreams, RandomFaultsAreNoStream) {
  HugeStreams streams;
  uint32_t random = 1;
  for (int i = 0; i < 10000; i++) {
    random = random * 1664525 + 1013904223;
    EXPECT_FALSE(streams.on_fault(random >> 8, kAllPassed).is_sure()) << i;
  }
}

// All pages of a small block in random order: faults are near each other, but leave far pages behind.
TEST(HugeStreams, RandomFaultsInASmallBlockAreNoStream) {
  constexpr size_t kBlock = 4096;
  HugeStreams streams;
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

TEST(HugeStreams, ContinuesAtTheNextHugePageAndAtTheOneAfter) {
  HugeStreams streams;
  for (PageIndex page = 0; page <= 260; page += 65) streams.on_fault(page, kAllPassed);
  HugeStreams::pass_huge(streams.current(), 1);
  EXPECT_TRUE(streams.on_fault(2 * kHugePages, kAllPassed).is_sure());
  HugeStreams::pass_huge(streams.current(), 2);
  EXPECT_TRUE(streams.on_fault(4 * kHugePages, kAllPassed).is_sure()) << "another thread completed huge page 3";
}

TEST(HugeStreams, RemembersThatTheProgramWrites) {
  HugeStreams streams;
  for (PageIndex page = 0; page <= 260; page += 65) streams.on_fault(page, kAllPassed);
  HugeStreams::pass_huge(streams.current(), 1);
  streams.record_write(7);
  EXPECT_FALSE(streams.current().writes);
  streams.record_write(1);
  EXPECT_TRUE(streams.current().writes);
}

class HugeQueueTest : public testing::Test {
 protected:
  HugeTable table_{1000 * kHugePages};
  Frames frames_;
  HugeQueue queue_{table_, frames_};
  HugeIndex huge_ = 0;
  HugeQueue::Kind kind_ = HugeQueue::kMain;
};

TEST_F(HugeQueueTest, KeepsARecentPartAndFindsTheOldestFirst) {
  frames_.set_limit(320 * kHugePages);  // of which a thirty-second is kept: 10 huge pages
  for (HugeIndex e = 0; e < 12; e++) queue_.push(e, HugeQueue::kRecent);
  queue_.push(3, HugeQueue::kRecent);  // it has an entry already
  EXPECT_EQ(queue_.size(HugeQueue::kRecent), 12u);
  ASSERT_TRUE(queue_.pop_surplus(&huge_, &kind_));
  EXPECT_EQ(huge_, 0u);
  ASSERT_TRUE(queue_.pop_surplus(&huge_, &kind_));
  EXPECT_EQ(huge_, 1u);
  EXPECT_FALSE(queue_.pop_surplus(&huge_, &kind_));
  EXPECT_FALSE(queue_.pop(HugeQueue::kMain, &huge_));
  queue_.push(0, HugeQueue::kMain);
  ASSERT_TRUE(queue_.pop(HugeQueue::kMain, &huge_));
  EXPECT_EQ(huge_, 0u);
}

TEST_F(HugeQueueTest, KeepsMoreWhileHugePagesReturnAtOnce) {
  frames_.set_limit(64 * kHugePages);
  queue_.push(0, HugeQueue::kRecent);
  size_t least = queue_.kept(HugeQueue::kRecent);
  queue_.record_return(1'000'000);
  EXPECT_EQ(queue_.kept(HugeQueue::kRecent), least);
  for (int i = 0; i < 100; i++) queue_.record_return(kHugePages);
  EXPECT_EQ(queue_.kept(HugeQueue::kRecent), 8u) << "at most an eighth";
  for (HugeIndex e = 1; e < 999; e++) queue_.push(e, HugeQueue::kRecent);
  EXPECT_EQ(queue_.kept(HugeQueue::kRecent), least) << "forgotten after 30 times 32 huge pages";
}

TEST_F(HugeQueueTest, KeepsNothingWhenNoStreamComes) {
  frames_.set_limit(64 * kHugePages);
  queue_.push(0, HugeQueue::kRecent);
  EXPECT_FALSE(queue_.pop_surplus(&huge_, &kind_));
  frames_.count_evicted(17 * kHugePages);
  EXPECT_TRUE(queue_.pop_surplus(&huge_, &kind_));
}

TEST_F(HugeQueueTest, KeepsAQuarterForNewHugePages) {
  frames_.set_limit(64 * kHugePages);
  for (HugeIndex e = 0; e < 17; e++) queue_.push(e, HugeQueue::kNew);
  queue_.push(20, HugeQueue::kRecent);
  ASSERT_TRUE(queue_.pop_surplus(&huge_, &kind_));
  EXPECT_EQ(huge_, 0u);
  EXPECT_EQ(kind_, HugeQueue::kNew);
  EXPECT_FALSE(queue_.pop_surplus(&huge_, &kind_));
  frames_.count_evicted(17 * kHugePages);  // the program fills no more
  for (unsigned popped = 0; popped < 17; popped++) EXPECT_TRUE(queue_.pop_surplus(&huge_, &kind_));
  EXPECT_FALSE(queue_.pop_surplus(&huge_, &kind_));
}

class HugeDensityTest : public testing::Test {
 protected:
  HugeDensityTest() { frames_.set_limit(64 * kHugePages); }
  // A stay in which so many pages come, of so many that were far, each so often.
  void stay(HugeIndex huge, unsigned pages, unsigned far = kHugePages, unsigned times = 1) {
    pass_time();
    for (unsigned i = 0; i < pages * times; i++) {
      PageIndex page = first_page(huge) + i % pages;
      density_.record_fetch(huge, {&page, 1}, [&] { return far; });
    }
  }
  void pass_time() { frames_.count_evicted(33 * kHugePages); }
  void stay_densely(HugeIndex huge, unsigned stays) {
    for (unsigned i = 0; i < stays; i++) stay(huge, kHugePages);
  }
  // How often it comes whole until the next trial.
  unsigned whole_stays(HugeIndex huge) {
    unsigned stays = 0;
    while (whole_stay(huge)) stays++;
    return stays;
  }
  bool whole_stay(HugeIndex huge) {
    if (!density_.expects_use(huge)) return false;
    density_.record_whole(huge);
    return true;
  }

  HugeTable table_{1000 * kHugePages};
  Frames frames_;
  HugeDensity density_{table_, frames_};
};

TEST_F(HugeDensityTest, ComesWholeAfterTwoDenseStays) {
  stay_densely(0, 1);
  EXPECT_EQ(whole_stays(0), 0u) << "one may be chance";
  stay_densely(0, 1);
  EXPECT_EQ(whole_stays(0), 1u);
  EXPECT_EQ(whole_stays(1), 0u);
}

TEST_F(HugeDensityTest, TrialsThatAreDenseEarnMore) {
  stay_densely(0, 2);
  for (unsigned expected : {1u, 2u, 4u, 8u, 8u}) {
    EXPECT_EQ(whole_stays(0), expected);
    stay_densely(0, 1);
  }
}

TEST_F(HugeDensityTest, ATrialThatIsNotDenseEndsIt) {
  stay_densely(0, 4);
  EXPECT_EQ(whole_stays(0), 4u);
  stay(0, kHugePages / 2);
  stay_densely(0, 1);
  EXPECT_EQ(whole_stays(0), 0u);
}

TEST_F(HugeDensityTest, PagesThatReturnAgainAndAgainCountOnce) {
  for (int i = 0; i < 4; i++) stay(0, kHugePages / 2, kHugePages, 4);
  EXPECT_EQ(whole_stays(0), 0u);
}

TEST_F(HugeDensityTest, PagesThatStayedNearAreNotMissed) {
  for (int i = 0; i < 2; i++) stay(0, kHugePages * 5 / 8, kHugePages * 5 / 8);
  EXPECT_EQ(whole_stays(0), 1u);
  for (int i = 0; i < 4; i++) stay(1, kHugePages / 4, kHugePages / 4);
  EXPECT_EQ(whole_stays(1), 0u) << "most of it is near: coming whole would save nothing";
}

TEST_F(HugeDensityTest, UseThatTakesLongIsSparse) {
  for (int i = 0; i < 4; i++) {
    stay(0, kHugePages / 2);
    PageIndex page = kHugePages - 1;
    for (int later = 0; later < 2; later++) {
      pass_time();
      density_.record_fetch(0, {&page, 1}, [] { return kHugePages; });
    }
  }
  EXPECT_EQ(whole_stays(0), 0u);
}

// Where the whole program changes, the first trials end all whole stays.
TEST_F(HugeDensityTest, TrialsThatFailLowerTheConfidence) {
  for (HugeIndex e = 0; e < 100; e++) stay_densely(e, 5);
  unsigned whole = 0;
  for (int round = 0; round < 20; round++) {
    for (HugeIndex e = 0; e < 100; e++) {
      whole += whole_stay(e);
      frames_.count_evicted(kHugePages);
    }
  }
  EXPECT_LE(whole, 900u) << "eight stays of each, and what comes during two trials";
  EXPECT_FALSE(density_.expects_use(99));
}

TEST(HugeTable, AdviceIsForgottenAndSumsAreDropped) {
  HugeTable table(10 * kHugePages);
  table.set(4, HugeTable::kAdviseHuge);
  table.set(4, HugeTable::kQueued);
  table.forget_advice(4);
  EXPECT_FALSE(table.has(4, HugeTable::kAdviseHuge));
  EXPECT_TRUE(table.has(4, HugeTable::kQueued));
  uint64_t* sums = HugeTable::make_sums();
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

TEST(HugeBits, CountsPages) {
  HugeBits bits;
  EXPECT_EQ(bits.count(), 0u);
  for (unsigned i = 0; i < kHugePages; i++) bits.set(i);
  EXPECT_TRUE(bits.is_full());
  EXPECT_TRUE(bits.has(511));
}

}  // namespace
}  // namespace farside::pager
