// Reads that are in flight while their thread runs the program, and hints, which start such reads.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/core_sharing.h"
#include "farside/fiber.hpp"
#include "pager/test_support.h"

namespace farside::pager {
namespace {

constexpr uint64_t kSpace = 1 * kGiB;
constexpr size_t kPages = 8192;  // twice the budget

// Signal mode over a store that can or cannot be read in place. Each page contains its number.
class ReadsTest : public testing::TestWithParam<bool> {
 protected:
  ReadsTest() : pager_(options(), new LocalStore(kSpace, kSpace, GetParam()), Delivery::kSignal) {
    memory_ = pager_.allocate(kPages * kPageSize);
    for (size_t i = 0; i < kPages; i++) at(i) = i;
    wait_for_free_frames();
  }
  ~ReadsTest() override {
    pager_.free(memory_, kPages * kPageSize);
    EXPECT_EQ(pager_->stats().near_pages, 0u);
    pager_->check_valid();
  }
  static Options options() {
    Options o;
    o.local = {16 * kMiB, 0};
    o.space = kSpace;
    return o;
  }
  volatile uint64_t& at(size_t page) { return *reinterpret_cast<volatile uint64_t*>(memory_ + page * kPageSize); }
  uint64_t count(Counter c) { return pager_->stats().get(c); }
  PageWord word(size_t page) { return pager_->table().word(reinterpret_cast<uint64_t>(memory_ + page * kPageSize)); }
  // Waits until the evictors have freed enough frames: windows and hints use free frames only.
  void wait_for_free_frames() {
    constexpr uint64_t kEnough = 60;  // below the low-water mark, so the evictors free as many
    for (;;) {
      Stats s = pager_->stats();
      if (s.near_pages + s.metadata_bytes / kPageSize + kEnough <= s.limit_pages) return;
      pager_->evictors().set_local(options().local);  // makes the evictors recompute the metadata
      os::nanosleep_ns(1000000);
    }
  }
  // The first pages were written first and have been evicted; they are clean when fetched again.
  void expect_far(size_t page) { ASSERT_TRUE(word(page).is(PageState::kFar)) << page; }
  void hint(size_t page, size_t pages, Hint h = {}) {
    h.address = reinterpret_cast<uint64_t>(memory_ + page * kPageSize);
    h.bytes = pages * kPageSize;
    pager_->paging().hint(h);
  }

  PagerFixture pager_;
  std::byte* memory_;

  friend void access_at_random(ReadsTest& test, bool hinted);
};

TEST_P(ReadsTest, TheNextWindowOfAStreamIsInFlight) {
  size_t reached = 0, ahead = 0;
  while (ahead == 0 && reached < 256) {  // on a busy machine there may be no free frame for a window
    wait_for_free_frames();
    for (size_t end = reached + 64; reached < end; reached++) ASSERT_EQ(at(reached), reached);
    for (size_t i = reached; i < reached + 336; i++)
      ahead += word(i).is(PageState::kFetching) || word(i).is(PageState::kNear);
  }
  EXPECT_TRUE(ahead > 0 || GetParam());  // in place: only if an evictor maps in time
  uint64_t faults = count(Counter::kFaults);
  for (size_t i = reached; i < 1024; i++) ASSERT_EQ(at(i), i);
  EXPECT_LT(count(Counter::kFaults) - faults, (1024 - reached) / 2);  // far fewer where the evictors keep up
  EXPECT_GT(count(Counter::kPrefetchUsed), 500u);
}

// All but its first page, whose fault shows that the stream has reached the window. On a busy machine there may be no
// free frame for a window, so several streams are tried; and where no core is free, evictors map nothing ahead.
TEST_P(ReadsTest, ABackgroundThreadMapsTheWindowAhead) {
  constexpr size_t kRead = 41, kLength = 400, kApart = 500;
  bool is_mapped = false, is_crowded = false;
  CoreSharing core(20);
  for (size_t from = 0; from < 7 * kApart && !is_mapped; from += kApart) {
    wait_for_free_frames();
    uint64_t before = count(Counter::kMappedAhead);
    for (size_t i = from; i < from + kRead; i++) {
      ASSERT_EQ(at(i), i);
      os::nanosleep_ns(1000000);  // slower than the evictors map, even on a busy machine
    }
    auto fetching = [&] {
      size_t pages = 0;
      for (size_t i = from + kRead; i < from + kLength; i++) pages += word(i).is(PageState::kFetching);
      return pages;
    };
    for (int i = 0; i < 1000 && !is_mapped; i++) {
      core.yield();
      is_crowded |= core.is_crowded();
      is_mapped = count(Counter::kMappedAhead) > before && fetching() == 1;
      os::nanosleep_ns(1000000);
    }
    for (size_t i = from + kRead; i < from + kLength; i++) ASSERT_EQ(at(i), i);
  }
  if (!is_mapped && is_crowded) GTEST_SKIP() << "no core is free";
  EXPECT_TRUE(is_mapped);
}

TEST_P(ReadsTest, OtherThreadsCompleteTheReadsOfABusyThread) {
  std::atomic<int> step{0};
  std::thread reader([&] {
    for (size_t i = 0; i < 40; i++) EXPECT_EQ(at(i), i);
    step = 1;
    while (step != 2) os::sched_yield();  // computes, and never completes its reads
    pager_->paging().detach_thread();
  });
  while (step != 1) os::sched_yield();
  for (size_t i = 0; i < 400; i++) ASSERT_EQ(at(i), i);
  step = 2;
  reader.join();
}

TEST_P(ReadsTest, AThreadMayEndWithReadsInFlight) {
  for (int round = 0; round < 50; round++) {
    std::thread([&] {
      for (size_t i = 0; i < 20; i++) EXPECT_EQ(at(round * 64 + i), round * 64 + i);
      if (round % 2 == 0) pager_->paging().detach_thread();  // other threads end without detach_thread()
    }).join();
  }
  for (size_t i = 0; i < kPages; i++) ASSERT_EQ(at(i), i);
}

TEST_P(ReadsTest, MemoryWithReadsInFlightCanBeDiscarded) {
  for (size_t i = 0; i < 40; i++) ASSERT_EQ(at(i), i);
  pager_->addresses().discard(memory_, 512 * kPageSize);
  for (size_t i = 0; i < 600; i++) ASSERT_EQ(at(i), i < 512 ? 0 : i);
}

// Reads that no thread waits for hold frames; other threads must make progress all the same.
TEST_P(ReadsTest, AbandonedReadsReleaseTheirFrames) {
  std::atomic<unsigned> ready{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (size_t t = 0; t < 40; t++) {
    readers.emplace_back([&, t] {
      for (size_t i = 0; i < 24; i++) EXPECT_EQ(at(t * 100 + i), t * 100 + i);
      ready++;
      while (!done) os::nanosleep_ns(1000000);
    });
  }
  while (ready < readers.size()) os::sched_yield();
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < kPages; i++) ASSERT_EQ(at(i * 2731 % kPages), i * 2731 % kPages);
  }
  done = true;
  for (std::thread& t : readers) t.join();
}

TEST_P(ReadsTest, AHintFetchesItsPages) {
  for (size_t i = 0; i < 80; i++) expect_far(i);
  uint64_t faults = count(Counter::kFaults), fetches = count(Counter::kReads);
  hint(0, 4, {.ahead = 32, .wait_for_frames = true});
  hint(70, 1, {.behind = 5, .wait_for_frames = true});
  EXPECT_EQ(count(Counter::kReads) - fetches, 2u);  // one request each
  for (size_t i = 0; i < 4; i++) EXPECT_TRUE(word(i).is(PageState::kNear)) << i;
  for (size_t i = 0; i < 36; i++) ASSERT_EQ(at(i), i);
  for (size_t i = 65; i <= 70; i++) ASSERT_EQ(at(i), i);
  EXPECT_EQ(count(Counter::kFaults), faults);
  EXPECT_EQ(count(Counter::kHintsFetched), 42u);
  expect_far(36);
  expect_far(64);
}

TEST_P(ReadsTest, AWriteAfterAWriteHintDoesNotFault) {
  ASSERT_EQ(at(1), 1u);
  hint(1, 1, {.write = true});                           // near and clean
  hint(2, 1, {.write = true, .wait_for_frames = true});  // far
  std::byte* fresh = pager_.allocate(kPageSize);
  uint64_t never_touched = reinterpret_cast<uint64_t>(fresh);
  pager_->paging().hint({.address = never_touched, .bytes = 8, .write = true, .wait_for_frames = true});
  uint64_t faults = count(Counter::kFaults);
  at(1) = 11;
  at(2) = 12;
  *fresh = std::byte{13};
  EXPECT_EQ(count(Counter::kFaults), faults);
  pager_.free(fresh, kPageSize);
}

TEST_P(ReadsTest, HintsMarkPagesHotAndSetPriorities) {
  hint(5, 1, {.priority = 3, .wait_for_frames = true});
  EXPECT_FALSE(word(5).has(PageWord::kHot));  // used for the first time
  EXPECT_EQ(word(5).priority(), 3u);
  hint(5, 1, {.priority = 1});
  EXPECT_TRUE(word(5).has(PageWord::kHot));
  EXPECT_EQ(word(5).priority(), 1u);
}

TEST_P(ReadsTest, WrongHintsAreHarmlessAndCounted) {
  std::byte* freed = pager_.allocate(kPageSize);
  pager_.free(freed, kPageSize);
  auto address = [](std::byte* p) { return reinterpret_cast<uint64_t>(p); };
  pager_->paging().hint({.address = address(freed), .bytes = 8});
  pager_->paging().hint(
      {.address = address(pager_->space().base() + kSpace - 1), .bytes = ~uint64_t{0}, .write = true, .ahead = 255});
  pager_->paging().hint({.address = address(memory_), .bytes = 0});
  EXPECT_EQ(count(Counter::kHintsWild), 3u);
  pager_->paging().hint({.address = address(memory_),
                         .bytes = ~uint64_t{0} - address(memory_),
                         .write = true,
                         .ahead = 255,
                         .behind = 255});
  pager_->paging().hint({.address = address(memory_ + 3), .bytes = kPages * kPageSize});
  EXPECT_EQ(count(Counter::kHintsWild), 3u);
  Stats s = pager_->stats();
  EXPECT_LE(s.near_peak_pages, s.limit_pages);
  for (size_t i = 0; i < kPages; i++) ASSERT_EQ(at(i), i);
}

TEST_P(ReadsTest, HintsRaceWithEverythingElse) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; t++) {
    threads.emplace_back([&, t] {
      uint64_t random = t + 1;
      while (!stop) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t page = (random >> 33) % kPages;
        hint(page, 1 + (random >> 20) % 8,
             {.write = (random & 64) != 0, .ahead = static_cast<unsigned>(random >> 40 & 31)});
        if (t == 0 && (random >> 50) % 16 == 0) pager_->addresses().discard(memory_ + 4000 * kPageSize, 50 * kPageSize);
        EXPECT_TRUE(at(page) == page || (page >= 4000 && at(page) == 0));
      }
      pager_->paging().detach_thread();
    });
  }
  for (int i = 0; i < 20000; i++) ASSERT_EQ(at(i * 2731 % 4000), i * 2731u % 4000);
  stop = true;
  for (std::thread& t : threads) t.join();
}

// Sixteen fibers of two workers access random far pages, with or without hints.
void access_at_random(ReadsTest& test, bool hinted);

TEST_P(ReadsTest, FibersRunWhilePagesAreFetched) { access_at_random(*this, false); }
TEST_P(ReadsTest, FibersRunWhileHintedPagesAreFetched) { access_at_random(*this, true); }

INSTANTIATE_TEST_SUITE_P(Stores, ReadsTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "InPlace" : "Copying"; });

void access_at_random(ReadsTest& test, bool hinted) {
  std::atomic<unsigned> wrong{0};
  run_fibers(2, [&] {
    std::vector<fiber> fibers;
    for (unsigned f = 0; f < 16; f++) {
      fibers.emplace_back([&, f] {
        uint64_t random = f + 1;
        for (int i = 0; i < 2000; i++) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          size_t page = (random >> 33) % (kPages / 16) * 16 + f;  // each fiber writes its own pages
          if (hinted) test.hint(page, 1, {.write = i % 4 == 0});
          uint64_t value = test.at(page);
          if (value % kPages != page) wrong++;
          if (i % 4 == 0) test.at(page) = value + kPages;
          if (i % 64 == 0) this_fiber::yield();
        }
      });
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace farside::pager
