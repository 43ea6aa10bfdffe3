// Tests of the pager with huge frames. Skipped where the kernel has none, or cannot move them.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "pager/test_support.h"

namespace farside::pager {
namespace {

constexpr uint64_t kSpace = 512 * kMiB;
constexpr size_t kBytes = 128 * kMiB;
constexpr size_t kPages = kBytes / kPageSize;

class HugePagesTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { start({}); }

  // immediate: far memory is read in place.
  void start(Options o, uint64_t near = 48 * kMiB, size_t bytes = kBytes) {
    o.space = kSpace;
    o.local = {near, 0};
    pager_.reset();
    pager_ = std::make_unique<PagerFixture>(o, new LocalStore(kSpace, kSpace, GetParam()), Delivery::kSignal);
    memory_ = pager().allocate(bytes);
  }
  PagerFixture& pager() { return *pager_; }
  bool has_huge_pages() { return pager()->paging().uses_huge_pages(); }
  uint64_t count(Counter c) { return pager()->stats().get(c); }
  volatile uint64_t& word(size_t page, size_t at = 0) {
    return *reinterpret_cast<volatile uint64_t*>(memory_ + page * kPageSize + at * 8);
  }
  void write_all(uint64_t salt) {
    for (size_t i = 0; i < kPages; i++) word(i, i % 512) = i * 0x9e3779b97f4a7c15 + salt;
  }
  size_t differences(uint64_t salt) {
    size_t bad = 0;
    for (size_t i = 0; i < kPages; i++) bad += word(i, i % 512) != i * 0x9e3779b97f4a7c15 + salt;
    return bad;
  }
  // A word of the page that write_all leaves alone.
  static size_t place_beside(size_t page) { return page % 512 == 1 ? 2 : 1; }
  // Everything is freed: no frame and no page may be counted.
  void free_all() {
    pager().free(memory_, kBytes);
    EXPECT_EQ(pager()->stats().near_pages, 0u);
    EXPECT_EQ(pager()->stats().populated_pages, 0u);
    pager()->check_valid();
  }

  std::unique_ptr<PagerFixture> pager_;
  std::byte* memory_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Stores, HugePagesTest, testing::Bool(),
                         [](const auto& store) { return store.param ? "InPlace" : "Copying"; });

TEST_P(HugePagesTest, StreamsComeAndLeaveWhole) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  for (int pass = 0; pass < 3; pass++) EXPECT_EQ(differences(1), 0u);
  EXPECT_GT(count(Counter::kHugeFetched), 60u);
  EXPECT_GT(count(Counter::kHugeEvicted), 60u);
  EXPECT_LE(pager()->stats().near_peak_pages, pager()->frames().limit() * kPageSize / kPageSize);
  free_all();
}

// Near memory has room: a new frame demands that an eighth of it stays free.
TEST_P(HugePagesTest, ThePeakIsOfWhatHoldsData) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  Options o;
  o.huge = HugePages::kAlways;
  start(o, 2 * kBytes);
  write_all(1);
  Stats s = pager()->stats();
  EXPECT_GE(s.near_peak_pages, kPages);
  EXPECT_LE(s.near_peak_pages, kPages + kPages / 64);
  EXPECT_EQ(s.near_mean_pages, s.near_peak_pages);
  free_all();
}

TEST_P(HugePagesTest, BackwardsToo) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  size_t bad = 0;
  for (size_t i = kPages; i-- > 0;) bad += word(i, i % 512) != i * 0x9e3779b97f4a7c15 + 1;
  EXPECT_EQ(bad, 0u);
  EXPECT_GT(count(Counter::kHugeFetched), 0u);  // how many depends on when the evictor has free frames
  free_all();
}

// Eight streams in turn, of which each has a huge page in use: none may push out another's.
TEST_P(HugePagesTest, ManyStreamsTakeTurns) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  constexpr size_t kStreams = 8, kEach = kPages / kStreams;
  write_all(1);
  size_t bad = 0;
  auto pass = [&] {
    for (size_t i = 0; i < kEach; i++) {
      for (size_t s = 0; s < kStreams; s++) {
        size_t page = s * kEach + i;
        bad += word(page, page % 512) != page * 0x9e3779b97f4a7c15 + 1;
      }
    }
  };
  pass();
  uint64_t before = count(Counter::kHugeFetched);
  pass();
  EXPECT_EQ(bad, 0u);
  EXPECT_LT(count(Counter::kHugeFetched) - before, 2 * kPages / kHugePages);
  free_all();
}

// Blocks are used whole, in random order: no stream. When they return, most come whole. When the use becomes sparse,
// that ends.
TEST_P(HugePagesTest, BlocksThatWereUsedWholeReturnWhole) {
  constexpr size_t kBlockPages = 16 * kHugePages, kAll = 8 * kBlockPages;
  pager().free(memory_, kBytes);
  start({}, 96 * kMiB, kAll * kPageSize);
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  for (size_t i = 0; i < kAll; i++) word(i) = i + 1;
  size_t bad = 0;
  uint32_t random = 1;
  auto next = [&](size_t bound) { return (random = random * 1664525 + 1013904223, random >> 8) % bound; };
  auto pass = [&] {
    uint64_t before = count(Counter::kMajorFaults);
    std::vector<size_t> order(kBlockPages);
    for (size_t block = 0; block < kAll; block += kBlockPages) {
      for (size_t i = 0; i < kBlockPages; i++) order[i] = block + i;
      for (size_t i = kBlockPages; i > 1; i--) std::swap(order[i - 1], order[next(i)]);
      for (size_t page : order) bad += word(page) != page + 1;
    }
    return count(Counter::kMajorFaults) - before;
  };
  uint64_t first = pass(), later = first;
  // Where the kernel has no huge page for a while, huge pages come by pages.
  for (int i = 0; i < 20 && later >= first / 2; i++) later = pass();
  EXPECT_LT(later, first / 2);
  uint64_t before = count(Counter::kHugeFetched);
  for (size_t i = 0; i < kAll / 4; i++) {
    size_t page = next(kAll);
    bad += word(page) != page + 1;
  }
  EXPECT_LT(count(Counter::kHugeFetched) - before, 3 * 48u) << "near memory has 48";
  EXPECT_EQ(bad, 0u);
  pager().free(memory_, kAll * kPageSize);
}

TEST_P(HugePagesTest, StreamsOfWritesLoseNothing) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  for (uint64_t pass = 0; pass < 3; pass++) {
    write_all(pass);
    EXPECT_EQ(differences(pass), 0u) << pass;
    for (size_t i = 0; i < kPages; i++) word(i, i % 512) = word(i, i % 512) + 1;  // a load, then a store
    EXPECT_EQ(differences(pass + 1), 0u) << pass;
  }
  EXPECT_GT(count(Counter::kHugeUpgraded), 0u);
  free_all();
}

// Single writes to huge pages that were read, by two threads: each counts, wherever it falls.
TEST_P(HugePagesTest, SingleWritesBesideAStreamLoseNothing) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  std::atomic<bool> stop{false};
  std::vector<uint64_t> written(kPages, 0);
  std::thread writer([&] {
    uint32_t random = 1;
    while (!stop.load()) {
      random = random * 1664525 + 1013904223;
      size_t page = (random >> 8) % kPages;
      word(page, place_beside(page)) = ++written[page];
    }
    pager()->paging().detach_thread();
  });
  for (int pass = 0; pass < 3; pass++) EXPECT_EQ(differences(1), 0u);
  stop.store(true);
  writer.join();
  size_t bad = 0;
  for (size_t page = 0; page < kPages; page++) {
    if (written[page] > 0) bad += word(page, place_beside(page)) != written[page];
  }
  EXPECT_EQ(bad, 0u);
  free_all();
}

TEST_P(HugePagesTest, PagesThatWereNeverTouchedReadAsZero) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  for (size_t i = 0; i < kPages; i++) {
    if (i % 5 != 2) word(i) = i + 1;
  }
  for (int pass = 0; pass < 2; pass++) {
    size_t bad = 0;
    for (size_t i = 0; i < kPages; i++) bad += word(i) != (i % 5 != 2 ? i + 1 : 0);
    EXPECT_EQ(bad, 0u);
  }
  EXPECT_GT(count(Counter::kHugeFetched), 10u);
  free_all();
}

TEST_P(HugePagesTest, HugePagesWithNearAndChangedPagesComeWhole) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  EXPECT_EQ(differences(1), 0u);
  uint64_t before = count(Counter::kHugeFetched);
  for (size_t i = 0; i < kPages; i += 1021) word(i, 3) = i + 7;  // scattered, changed, and near as the stream comes
  EXPECT_EQ(differences(1), 0u);
  EXPECT_EQ(differences(1), 0u);
  size_t bad = 0;
  for (size_t i = 0; i < kPages; i += 1021) bad += word(i, 3) != i + 7;
  EXPECT_EQ(bad, 0u);
  EXPECT_GT(count(Counter::kHugeFetched), before + 40);
  free_all();
}

TEST_P(HugePagesTest, PartsMayBeDiscardedFreedAndProtected) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  EXPECT_EQ(differences(1), 0u);
  std::byte* middle = memory_ + 64 * kMiB;
  pager()->addresses().discard(middle + 3 * kPageSize, 700 * kPageSize);
  pager()->addresses().decommit(middle + 4 * kMiB, kMiB);
  ASSERT_TRUE(pager()->addresses().commit(middle + 4 * kMiB, kMiB).ok());
  ASSERT_TRUE(pager()->addresses().protect(middle + 8 * kMiB, 5 * kPageSize, PROT_NONE).ok());
  ASSERT_TRUE(pager()->addresses().protect(middle + 8 * kMiB, 5 * kPageSize, PROT_READ | PROT_WRITE).ok());
  for (int pass = 0; pass < 2; pass++) {
    size_t bad = 0, first = 64 * kMiB / kPageSize;
    for (size_t i = 0; i < kPages; i++) {
      bool gone = (i >= first + 3 && i < first + 703) || (i >= first + 1024 && i < first + 1280);
      bad += word(i, i % 512) != (gone ? 0 : i * 0x9e3779b97f4a7c15 + 1);
    }
    EXPECT_EQ(bad, 0u);
  }
  free_all();
}

TEST_P(HugePagesTest, PinnedPagesStay) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  EXPECT_EQ(differences(1), 0u);
  ASSERT_EQ(pager()->paging().pin(memory_ + 33 * kMiB, kPageSize, true), kPageSize);
  EXPECT_EQ(differences(1), 0u);
  EXPECT_TRUE(pager()->table().word(reinterpret_cast<uint64_t>(memory_ + 33 * kMiB)).writable());
  pager()->paging().unpin(memory_ + 33 * kMiB, kPageSize);
  EXPECT_EQ(differences(1), 0u);
  free_all();
}

TEST_P(HugePagesTest, TheBudgetMayFall) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  EXPECT_EQ(differences(1), 0u);
  pager()->evictors().set_local({34 * kMiB, 0});
  EXPECT_EQ(differences(1), 0u);
  EXPECT_LE(pager()->stats().near_pages, 34 * kMiB / kPageSize);
  pager()->evictors().set_local({12 * kMiB, 0});  // too small for huge pages: those that are near leave
  EXPECT_EQ(differences(1), 0u);
  EXPECT_LE(pager()->stats().near_pages, 12 * kMiB / kPageSize);
  free_all();
}

TEST_P(HugePagesTest, FirstTouchesFollowTheAdvice) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  Options o;
  o.huge = HugePages::kAlways;
  start(o);
  uint64_t filled = count(Counter::kHugeFilled);
  word(10 * kHugePages) = 1;
  EXPECT_EQ(count(Counter::kHugeFilled), filled + 1);
  EXPECT_EQ(word(10 * kHugePages + 5), 0u);
  start({});
  pager()->paging().advise(memory_ + 8 * kMiB, 8 * kMiB, MADV_HUGEPAGE);
  pager()->paging().advise(memory_ + 12 * kMiB, 2 * kMiB, MADV_NOHUGEPAGE);
  filled = count(Counter::kHugeFilled);
  word(5 * kHugePages) = 1;
  EXPECT_EQ(count(Counter::kHugeFilled), filled + 1);
  word(6 * kHugePages) = 1;
  EXPECT_EQ(count(Counter::kHugeFilled), filled + 1);
  free_all();
}

TEST_P(HugePagesTest, AnnouncedHugePagesComeWhole) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  constexpr size_t kAnnounced = 8 * kHugePages;
  write_all(1);  // what was written first is far
  uint64_t fetched = count(Counter::kHugeFetched);
  pager()->paging().fetch_range(memory_, kAnnounced * kPageSize, false, true);
  uint64_t faults = count(Counter::kMajorFaults);
  size_t bad = 0;
  for (size_t i = 0; i < kAnnounced; i++) bad += word(i, i % 512) != i * 0x9e3779b97f4a7c15 + 1;
  EXPECT_EQ(bad, 0u);
  EXPECT_LT(count(Counter::kMajorFaults) - faults, kAnnounced / 10);
  for (size_t begin = kAnnounced; begin < kPages; begin += kAnnounced) {  // without waiting, and for writes
    pager()->paging().fetch_range(memory_ + begin * kPageSize, kAnnounced * kPageSize, begin % (2 * kAnnounced) == 0,
                                  false);
  }
  EXPECT_GT(count(Counter::kHugeFetched), fetched);  // not all: a fresh huge page may take the kernel 10 ms
  EXPECT_EQ(differences(1), 0u);
  EXPECT_LE(pager()->stats().near_peak_pages, pager()->frames().limit() * kPageSize / kPageSize);
  free_all();
}

TEST_P(HugePagesTest, NeverMeansNever) {
  Options o;
  o.huge = HugePages::kNever;
  start(o);
  EXPECT_FALSE(has_huge_pages());
  write_all(1);
  EXPECT_EQ(differences(1), 0u);
  EXPECT_EQ(count(Counter::kHugeFetched) + count(Counter::kHugeFilled), 0u);
}

#ifdef FARSIDE_EXPENSIVE_CHECKS
// The kernel maps what it moves writable. Another thread writes to each huge page right after the move, before it is
// protected: no such write may be lost, though the pages were fetched for reads.
TEST_P(HugePagesTest, WritesBetweenMoveAndProtectionAreFound) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  write_all(1);
  pager()->paging().assume_other_writers();
  static std::byte* s_memory;
  static Pager* s_pager;
  static uint64_t s_written[kBytes / kHugeBytes];
  s_memory = memory_;
  s_pager = &*pager();
  std::fill(std::begin(s_written), std::end(s_written), 0);
  auto write_unprotected = [](void*) {
    for (size_t e = 0; e < std::size(s_written); e++) {
      std::byte* page = s_memory + e * kHugeBytes + 77 * kPageSize;
      unsigned char present = 0;
      bool owned = s_pager->table().word(reinterpret_cast<uint64_t>(page)).is(PageState::kFetching);
      if (!owned || mincore(page, kPageSize, &present) != 0 || present == 0) continue;
      reinterpret_cast<volatile uint64_t*>(page)[511] = ++s_written[e];
    }
  };
  inject::arm_pause("huge:moved", write_unprotected, nullptr);
  for (int pass = 0; pass < 2; pass++) EXPECT_EQ(differences(1), 0u);
  inject::arm_pause("huge:moved", nullptr, nullptr);
  EXPECT_EQ(differences(1), 0u);
  size_t moves = 0, lost = 0;
  for (size_t e = 0; e < std::size(s_written); e++) {
    moves += s_written[e];
    lost += s_written[e] > 0 && word(e * kHugePages + 77, 511) != s_written[e];
  }
  EXPECT_GT(moves, 40u);
  EXPECT_EQ(lost, 0u);
  free_all();
}

TEST_P(HugePagesTest, AKernelThatRefusesToMoveCostsTimeOnly) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  inject::arm_failure("uffd_move", 3);
  // After a frame that could not be made, none is tried for a second.
  for (uint64_t pass = 0; pass < 3 || (pass < 100 && count(Counter::kHugeBroken) == 0); pass++) {
    write_all(pass);
    EXPECT_EQ(differences(pass), 0u);
  }
  inject::arm_failure("uffd_move", 0);
  EXPECT_GT(count(Counter::kHugeBroken), 0u);
  free_all();
}

// As Linux 6.17 does now and then.
TEST_P(HugePagesTest, AKernelThatReportsAMoveAsFailedLosesNothing) {
  if (!has_huge_pages()) GTEST_SKIP() << "no huge pages that can be moved";
  inject::arm_failure("uffd_move:unreported", 3);
  for (uint64_t pass = 0; pass < 3; pass++) {
    write_all(pass);
    EXPECT_EQ(differences(pass), 0u);
  }
  inject::arm_failure("uffd_move:unreported", 0);
  free_all();
}
#endif

}  // namespace
}  // namespace farside::pager
