#include "preload/trace/trace_sites.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/bits.h"

namespace farside::preload {
namespace {

constexpr uint64_t kBegin = uint64_t{1} << 40;
constexpr uint64_t kBytes = 64 * kMiB;
constexpr uint64_t kChunk = 2 * kMiB;

class TraceSites : public testing::Test {
 protected:
  TraceSites() {
    Status s = start_sites(kBegin, kBytes);  // anew for each test
    EXPECT_TRUE(s.ok()) << s.text();
  }
  const TraceSite& site(uint64_t number) { return trace_sites()[number - 1]; }
  void note(uint64_t stack, uint64_t offset, uint64_t bytes) { note_site(stack, kBegin + offset, bytes, bytes); }
  uint64_t at(uint64_t offset) { return site_at(kBegin + offset); }
};

TEST_F(TraceSites, PagesHaveNoSiteAtFirst) {
  for (uint64_t offset : {uint64_t{0}, kChunk, kBytes - 1}) EXPECT_EQ(at(offset), 0u);
}

TEST_F(TraceSites, APageBelongsToTheSiteThatItWasGivenLast) {
  note(111, 3 * kPageSize, 2 * kPageSize);
  note(222, 5 * kPageSize, 1);
  uint64_t first = at(3 * kPageSize), second = at(5 * kPageSize);
  ASSERT_NE(first, 0u);
  ASSERT_NE(second, 0u);
  EXPECT_NE(first, second);
  EXPECT_EQ(site(first).stack, 111u);
  EXPECT_EQ(site(second).stack, 222u);
  EXPECT_EQ(at(4 * kPageSize + 4095), first);
  EXPECT_EQ(at(2 * kPageSize + 4095), 0u);
  EXPECT_EQ(at(6 * kPageSize), 0u);
  note(222, 4 * kPageSize, kPageSize);
  EXPECT_EQ(at(3 * kPageSize), first);
  EXPECT_EQ(at(4 * kPageSize), second);
  EXPECT_EQ(at(5 * kPageSize), second);
}

TEST_F(TraceSites, PartsOfPagesCountWhole) {
  note(111, 3 * kPageSize + 4000, 200);  // over a border
  EXPECT_NE(at(3 * kPageSize), 0u);
  EXPECT_NE(at(4 * kPageSize + 4095), 0u);
  EXPECT_EQ(at(5 * kPageSize), 0u);
}

// Every page of a large allocation, whole chunks and the rests at both ends alike.
TEST_F(TraceSites, LargeAllocationsEnterAllTheirPages) {
  for (uint64_t begin : {uint64_t{0}, kPageSize, kChunk - kPageSize, kChunk, kChunk + kPageSize}) {
    for (uint64_t bytes : {kPageSize, kChunk - kPageSize, kChunk, kChunk + kPageSize, 5 * kChunk, 5 * kChunk + 1}) {
      ASSERT_TRUE(start_sites(kBegin, kBytes).ok());
      note(111, begin, bytes);
      uint64_t end = align_up(begin + bytes, kPageSize);
      for (uint64_t page = 0; page < 8 * kChunk; page += kPageSize) {
        ASSERT_EQ(at(page) != 0, page >= begin && page < end) << begin << " " << bytes << " " << page;
      }
    }
  }
}

TEST_F(TraceSites, TheNewerOfPageAndChunkIsUsed) {
  note(111, 0, 4 * kChunk);
  uint64_t large = at(kChunk);
  note(222, kChunk + kPageSize, 100);
  uint64_t small = at(kChunk + kPageSize);
  EXPECT_NE(small, large);
  EXPECT_EQ(at(kChunk), large);
  EXPECT_EQ(at(kChunk + 2 * kPageSize), large);
  note(111, 0, 4 * kChunk);  // given again as a whole
  EXPECT_EQ(at(kChunk + kPageSize), large);
}

TEST_F(TraceSites, SitesCountTheirBytes) {
  note_site(111, kBegin, 100, 5000);  // represents others that were not sampled
  note_site(111, kBegin + kPageSize, 300, 300);
  note_site(111, kBegin, 200, 200);
  const TraceSite& s = site(at(0));
  EXPECT_EQ(s.stack, 111u);
  EXPECT_EQ(s.bytes, 5500u);
  EXPECT_EQ(s.largest, 300u);
}

TEST_F(TraceSites, StacksWithEqualPlacesInTheTableStayDistinct) {
  constexpr unsigned kMeeting = 32;  // the number of places that are searched
  for (unsigned i = 0; i < kMeeting; i++) note(5 + i * kMaxTraceSites, i * kPageSize, 10 + i);
  std::set<uint64_t> seen;
  for (unsigned i = 0; i < kMeeting; i++) {
    uint64_t number = at(i * kPageSize);
    ASSERT_NE(number, 0u);
    seen.insert(number);
    EXPECT_EQ(site(number).stack, 5 + i * kMaxTraceSites);
    EXPECT_EQ(site(number).bytes, 10u + i);
  }
  EXPECT_EQ(seen.size(), kMeeting);
  // One more finds no place: its pages keep their sites.
  note(5 + kMeeting * kMaxTraceSites, 0, kPageSize);
  EXPECT_EQ(site(at(0)).stack, 5u);
}

TEST_F(TraceSites, TheSearchWrapsAroundTheTable) {
  note(kMaxTraceSites - 1, 0, 1);
  note(2 * kMaxTraceSites - 1, kPageSize, 1);  // the last place is taken: the first one
  EXPECT_EQ(at(0), kMaxTraceSites);
  EXPECT_EQ(at(kPageSize), 1u);
}

TEST_F(TraceSites, ThreadsCountTogether) {
  constexpr unsigned kThreads = 4, kRounds = 50'000, kStacks = 64;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([this, t] {
      for (unsigned i = 0; i < kRounds; i++) note(1 + i % kStacks, (t * 16 + i % 16) * kPageSize, 8);
    });
  }
  for (auto& t : threads) t.join();
  uint64_t bytes = 0, sites = 0;
  for (uint64_t i = 0; i < kMaxTraceSites; i++) {
    sites += trace_sites()[i].stack != 0;
    bytes += trace_sites()[i].bytes;
  }
  EXPECT_EQ(sites, kStacks);  // no stack has two places
  EXPECT_EQ(bytes, 8ull * kThreads * kRounds);
}

}  // namespace
}  // namespace farside::preload
