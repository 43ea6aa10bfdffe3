// Tests of twins and of the comparison of a page with its twin.
#include "pager/pages/twins.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace farside::pager {
namespace {

constexpr uint64_t kPages = 4096;
constexpr uint32_t kChunk = 64;    // twins per allocation from the near allocator
constexpr uint64_t kTrial = 2048;  // evicted pages in which twins are made although they do not pay
constexpr uint64_t kTrialPeriod = 16 * kTrial;

struct alignas(kPageSize) Page {
  std::byte bytes[kPageSize];
};
using PagePtr = std::unique_ptr<Page>;

PagePtr random_page(std::mt19937_64& random) {
  auto page = std::make_unique<Page>();
  for (size_t i = 0; i < kPageSize; i += 8) {
    uint64_t word = random();
    memcpy(page->bytes + i, &word, 8);
  }
  return page;
}

// Byte by byte.
uint64_t compared(const Page& a, const Page& b) {
  uint64_t lines = 0;
  for (size_t i = 0; i < kPageSize; i++) {
    if (a.bytes[i] != b.bytes[i]) lines |= uint64_t{1} << (i / kCacheLine);
  }
  return lines;
}

// ---- Lines ----

using Compare = uint64_t (*)(const std::byte*, const std::byte*, const std::byte*);

class LinesTest : public testing::TestWithParam<Compare> {
 protected:
  uint64_t changed(const Page& now, const Page& before) { return GetParam()(now.bytes, before.bytes, before.bytes); }
};

INSTANTIATE_TEST_SUITE_P(All, LinesTest, testing::Values(changed_lines, changed_lines_portable),
                         [](const auto& kind) { return kind.param == changed_lines ? "vectors" : "portable"; });

TEST_P(LinesTest, ASingleBitIsFoundAtEveryByte) {
  std::mt19937_64 random(1);
  PagePtr before = random_page(random), now = std::make_unique<Page>(*before);
  EXPECT_EQ(changed(*now, *before), 0u);
  for (size_t i = 0; i < kPageSize; i++) {
    std::byte flip{static_cast<unsigned char>(1u << (random() % 8))};
    now->bytes[i] ^= flip;
    EXPECT_EQ(changed(*now, *before), uint64_t{1} << (i / kCacheLine)) << i;
    now->bytes[i] ^= flip;
  }
}

TEST_P(LinesTest, AgreesWithAPlainComparison) {
  std::mt19937_64 random(2);
  PagePtr before = random_page(random);
  for (int round = 0; round < 500; round++) {
    PagePtr now = std::make_unique<Page>(*before);
    for (uint64_t changes = random() % 100; changes > 0; changes--) {
      now->bytes[random() % kPageSize] = static_cast<std::byte>(random());  // may equal the old value
    }
    ASSERT_EQ(changed(*now, *before), compared(*now, *before));
  }
  PagePtr other = random_page(random);
  EXPECT_EQ(changed(*other, *before), ~uint64_t{0});
}

TEST(Lines, RunsCoverTheSetBitsAndNoOthers) {
  std::mt19937_64 random(3);
  std::vector<uint64_t> masks = {
      0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{3} << 62, 0x5555555555555555, ~uint64_t{0} >> 1, ~uint64_t{1}};
  for (int i = 0; i < 1000; i++) masks.push_back(random() & (i % 2 ? random() : ~uint64_t{0}));
  for (uint64_t mask : masks) {
    uint64_t covered = 0;
    unsigned runs = 0, end = 0;
    for_each_run(mask, [&](unsigned first, unsigned count) {
      EXPECT_TRUE(runs == 0 || first > end) << std::hex << mask;  // upwards, and a gap between
      EXPECT_GT(count, 0u);
      for (unsigned line = first; line < first + count; line++) covered |= uint64_t{1} << line;
      end = first + count;
      runs++;
    });
    EXPECT_EQ(covered, mask);
    EXPECT_EQ(runs, runs_in(mask)) << std::hex << mask;
  }
}

// ---- Twins ----

class TwinsTest : public testing::Test {
 protected:
  TwinsTest() : content_(random_page(random_)) { frames_.set_limit(kPages); }

  // Makes twins of pages from `first` on until that fails. Returns their number.
  uint64_t fill(Twins& twins, PageIndex first = 0, unsigned thread = 0) {
    PageIndex page = first;
    for (; page < kPages; page++) {
      twins.make(page, content_->bytes, thread);
      if (!twins.has(page)) break;
    }
    return page - first;
  }
  uint64_t room(Twins& twins) {
    uint64_t count = fill(twins);
    for (PageIndex page = 0; page < count; page++) twins.drop(page);
    return count;
  }
  // Feeds measurements until the averages of the link and the evictors are these, in ticks per page.
  void measure(Twins& twins, uint64_t whole_handled, uint64_t whole_carried, uint64_t lines_handled,
               uint64_t lines_carried) {
    constexpr uint64_t kBatch = 64;
    for (int i = 0; i < 200; i++) {  // averages forget slowly
      twins.record_evictor_time(Twins::kWhole, kBatch, kBatch * whole_handled);
      twins.record_evictor_time(Twins::kByLines, kBatch, kBatch * lines_handled);
      twins.record_link_time(Twins::kWhole, kBatch, kBatch * whole_carried);
      twins.record_link_time(Twins::kByLines, kBatch, kBatch * lines_carried);
    }
  }
  bool makes(Twins& twins) {
    twins.make(0, content_->bytes, 0);
    bool made = twins.has(0);
    twins.drop(0);
    return made;
  }

  std::mt19937_64 random_{7};
  PagePtr content_;
  Frames frames_;
};

// So large that the measured time of copying is negligible.
constexpr uint64_t kTicks = 100'000'000;

TEST_F(TwinsTest, WholePagesNeedNone) {
  Twins twins(WriteBack::kPage, kPages, frames_);
  EXPECT_FALSE(twins.enabled());
  EXPECT_EQ(twins.entry_bytes(), 0u);
  twins.set_remote(true);
  twins.make(5, content_->bytes, 0);
  EXPECT_FALSE(twins.has(5));
  twins.drop(5);
}

TEST_F(TwinsTest, ATwinFindsWhatChangedAndEnds) {
  Twins twins(WriteBack::kLine, kPages, frames_);
  EXPECT_TRUE(twins.enabled());
  EXPECT_GT(twins.entry_bytes(), 0u);
  EXPECT_FALSE(twins.has(9));
  twins.make(9, content_->bytes, 3);
  EXPECT_TRUE(twins.has(9));
  EXPECT_FALSE(twins.has(8));
  EXPECT_FALSE(twins.has(10));
  Page now = *content_;
  EXPECT_EQ(twins.changes(9, now.bytes, 10), 0u);
  EXPECT_FALSE(twins.has(9));

  twins.make(9, now.bytes, 3);
  now.bytes[0] ^= std::byte{1};
  now.bytes[kPageSize - 1] ^= std::byte{1};
  EXPECT_EQ(twins.changes(9, now.bytes, 9), uint64_t{1} << 63 | 1);
  EXPECT_FALSE(twins.has(9));
}

TEST_F(TwinsTest, ADroppedTwinEnds) {
  Twins twins(WriteBack::kLine, kPages, frames_);
  twins.drop(3);  // before there was any
  twins.make(3, content_->bytes, 0);
  twins.drop(3);
  EXPECT_FALSE(twins.has(3));
  twins.drop(3);
  twins.make(3, content_->bytes, 0);
  EXPECT_TRUE(twins.has(3));
}

TEST_F(TwinsTest, TwinsOfManyPagesKeepTheirOwnContent) {
  frames_.set_limit(1024);
  Twins twins(WriteBack::kLine, kPages, frames_);
  constexpr PageIndex kMade = 300;
  std::vector<PagePtr> made;
  for (PageIndex page = 0; page < kMade; page++) {
    made.push_back(random_page(random_));
    twins.make(page, made.back()->bytes, static_cast<unsigned>(page));
    ASSERT_TRUE(twins.has(page));
  }
  for (PageIndex page = 0; page < kMade; page++) {
    Page now = *made[page];
    size_t byte = random_() % kPageSize;
    now.bytes[byte] ^= std::byte{4};
    ASSERT_EQ(twins.changes(page, now.bytes, page + 1), uint64_t{1} << (byte / kCacheLine)) << page;
  }
}

TEST_F(TwinsTest, ByLinesEveryNearPageMayHaveOne) {
  frames_.set_limit(4 * kChunk);
  Twins twins(WriteBack::kLine, kPages, frames_);
  EXPECT_EQ(fill(twins), 4 * kChunk);
  twins.drop(17);
  twins.make(3000, content_->bytes, 0);
  EXPECT_TRUE(twins.has(3000));  // in the slot that became free
}

TEST_F(TwinsTest, AChunkThatDoesNotFitTheLimitIsNotMade) {
  frames_.set_limit(kChunk - 1);
  Twins twins(WriteBack::kLine, kPages, frames_);
  EXPECT_EQ(fill(twins), 0u);
  frames_.set_limit(2 * kChunk - 1);
  EXPECT_EQ(fill(twins), kChunk);
}

TEST_F(TwinsTest, ThreadsShareTheLimit) {
  frames_.set_limit(2 * kChunk);
  Twins twins(WriteBack::kLine, kPages, frames_);
  EXPECT_EQ(fill(twins, 0, 5), kChunk * 2);
  EXPECT_EQ(fill(twins, 1000, 0), 0u);
  twins.drop(0);  // returned to the thread's number that made it
  EXPECT_EQ(fill(twins, 1000, 0), 0u);
  EXPECT_EQ(fill(twins, 1000, 5 + 16), 1u);  // the same lock as 5
}

TEST_F(TwinsTest, FreedTwinsAreUsedAgain) {
  Twins twins(WriteBack::kLine, kPages, frames_);
  twins.make(0, content_->bytes, 0);
  twins.drop(0);
  size_t one_chunk = near_bytes();
  for (int round = 0; round < 20; round++) {
    for (PageIndex page = 0; page < kChunk; page++) twins.make(page, content_->bytes, 0);
    for (PageIndex page = 0; page < kChunk; page++) {
      uint64_t changed = 0;
      if (page % 2) twins.drop(page);
      else changed = twins.changes(page, content_->bytes, page);
      EXPECT_EQ(changed, 0u);
    }
  }
  EXPECT_EQ(near_bytes(), one_chunk);
}

TEST_F(TwinsTest, TheirMemoryIsReturned) {
  size_t before = near_bytes();
  {
    Twins twins(WriteBack::kLine, kPages, frames_);
    fill(twins);
    EXPECT_GE(near_bytes(), before + kPages * kPageSize);
  }
  EXPECT_EQ(near_bytes(), before);
}

// ---- kAuto ----

TEST_F(TwinsTest, MemoryOfThisMachineNeedsNone) {
  Twins twins(WriteBack::kAuto, kPages, frames_);
  EXPECT_TRUE(twins.enabled());
  EXPECT_FALSE(makes(twins));
  twins.set_remote(true);
  EXPECT_TRUE(makes(twins));
  twins.set_remote(false);
  EXPECT_FALSE(makes(twins));
}

TEST_F(TwinsTest, UnmeasuredOneForFourPages) {
  frames_.set_limit(16 * kChunk);
  Twins twins(WriteBack::kAuto, kPages, frames_);
  twins.set_remote(true);
  EXPECT_EQ(room(twins), 4 * kChunk);
}

TEST_F(TwinsTest, HowManyThereMayBeFollowsTheGain) {
  frames_.set_limit(16 * kChunk);
  frames_.count_evicted(kTrial);  // no trial
  {
    Twins twins(WriteBack::kAuto, kPages, frames_);
    twins.set_remote(true);
    measure(twins, 1 * kTicks, 9 * kTicks, 6 * kTicks, 1 * kTicks);  // saves 9, costs 6
    EXPECT_EQ(room(twins), 4 * kChunk);
  }
  {
    Twins twins(WriteBack::kAuto, kPages, frames_);
    twins.set_remote(true);
    measure(twins, 5 * kTicks, 3 * kTicks, 6 * kTicks, 1 * kTicks);  // the evictor's own time counts, too
    EXPECT_EQ(room(twins), 4 * kChunk);
  }
  {
    Twins twins(WriteBack::kAuto, kPages, frames_);
    twins.set_remote(true);
    measure(twins, 1 * kTicks, 9 * kTicks, 4 * kTicks, 1 * kTicks);  // saves 9, costs 4
    EXPECT_EQ(room(twins), 16 * kChunk);
  }
  {
    Twins twins(WriteBack::kAuto, kPages, frames_);
    twins.set_remote(true);
    measure(twins, 1 * kTicks, 9 * kTicks, 10 * kTicks, 1 * kTicks);  // saves 9, costs 10
    EXPECT_EQ(room(twins), 0u);
  }
}

TEST_F(TwinsTest, LinesThatTakeLongerThanWholePagesGainNothing) {
  frames_.count_evicted(kTrial);
  Twins twins(WriteBack::kAuto, kPages, frames_);
  twins.set_remote(true);
  measure(twins, 1 * kTicks, 1 * kTicks, 1 * kTicks, 3 * kTicks);
  EXPECT_FALSE(makes(twins));
}

TEST_F(TwinsTest, NothingIsDecidedBeforeBothWereMeasured) {
  frames_.count_evicted(kTrial);
  Twins twins(WriteBack::kAuto, kPages, frames_);
  twins.set_remote(true);
  twins.record_evictor_time(Twins::kByLines, 64, 64 * kTicks);
  twins.record_link_time(Twins::kByLines, 64, 64 * kTicks);
  EXPECT_TRUE(makes(twins));
  twins.record_evictor_time(Twins::kWhole, 64, 64);
  twins.record_link_time(Twins::kWhole, 64, 64);
  EXPECT_FALSE(makes(twins));
}

TEST_F(TwinsTest, SmallRequestsMeasureALatencyAndDoNotCount) {
  frames_.count_evicted(kTrial);
  Twins twins(WriteBack::kAuto, kPages, frames_);
  twins.set_remote(true);
  measure(twins, 1 * kTicks, 9 * kTicks, 4 * kTicks, 1 * kTicks);
  for (int i = 0; i < 200; i++) twins.record_link_time(Twins::kByLines, 7, 7 * 100 * kTicks);
  EXPECT_TRUE(makes(twins));
  for (int i = 0; i < 200; i++) twins.record_link_time(Twins::kByLines, 8, 8 * 10 * kTicks);
  EXPECT_FALSE(makes(twins));
}

TEST_F(TwinsTest, WhereTheyDoNotPayOnePeriodInSixteenIsATrial) {
  Twins twins(WriteBack::kAuto, kPages, frames_);
  twins.set_remote(true);
  measure(twins, 1 * kTicks, 1 * kTicks, 9 * kTicks, 1 * kTicks);
  EXPECT_TRUE(makes(twins));  // 0 evicted
  frames_.count_evicted(kTrial - 1);
  EXPECT_TRUE(makes(twins));
  frames_.count_evicted(1);
  EXPECT_FALSE(makes(twins));
  frames_.count_evicted(kTrialPeriod - kTrial - 1);
  EXPECT_FALSE(makes(twins));
  frames_.count_evicted(1);
  EXPECT_TRUE(makes(twins));
  frames_.count_evicted(kTrial);
  EXPECT_FALSE(makes(twins));
  measure(twins, 1 * kTicks, 90 * kTicks, 9 * kTicks, 1 * kTicks);  // the link is slower now
  EXPECT_TRUE(makes(twins));
}

// ---- Threads ----

// Each thread has different pages and contents. A twin must find exactly the changes of its page; a slot used by two
// pages would give others. Some threads share a lock, all share the limit, and chunks are added meanwhile.
TEST_F(TwinsTest, NoTwinHasTwoPages) {
  constexpr unsigned kThreads = 4, kOwn = 2 * kChunk;
  frames_.set_limit(6 * kChunk);
  std::atomic<uint64_t> made{0}, wrong{0};
  for (int round = 0; round < 10; round++) {
    Twins twins(WriteBack::kLine, kPages, frames_);
    std::barrier together(kThreads);
    auto work = [&](unsigned thread) {
      PagePtr before = std::make_unique<Page>(), now = std::make_unique<Page>();
      together.arrive_and_wait();
      for (unsigned i = 0; i < 20 * kOwn; i++) {
        PageIndex page = thread * kOwn + i % kOwn;
        if (twins.has(page)) {
          memset(before->bytes, static_cast<int>(page % 251), kPageSize);
          *now = *before;
          now->bytes[i % kPageSize] ^= std::byte{1};
          wrong += twins.changes(page, now->bytes, page) != compared(*now, *before);
          made++;
        }
        memset(now->bytes, static_cast<int>(page % 251), kPageSize);
        twins.make(page, now->bytes, thread / 2);
        if (i % 3 == 0) twins.drop(page);
      }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(work, t);
    for (auto& t : threads) t.join();
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(made, 1000u);
}

// Threads that share one lock take and return slots in quick succession.
TEST_F(TwinsTest, FreeTwinsAreUsedOnce) {
  constexpr unsigned kThreads = 3;
  frames_.set_limit(kChunk);
  Twins twins(WriteBack::kLine, kPages, frames_);
  PagePtr any = std::make_unique<Page>();
  auto work = [&](unsigned thread) {
    for (int i = 0; i < 100'000; i++) {
      twins.make(thread, any->bytes, 0);
      twins.drop(thread);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(work, t);
  for (auto& t : threads) t.join();
  EXPECT_EQ(room(twins), kChunk);  // all are free, each once
}

}  // namespace
}  // namespace farside::pager
