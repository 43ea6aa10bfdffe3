#include "abi/trace_pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace farside {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 40;
constexpr int64_t kBasePage = static_cast<int64_t>(kBase / kPageSize);

bool nothing_near(int64_t) { return false; }
bool everything_near(int64_t) { return true; }

// Notes faults at these offsets.
template <typename IsNear>
TracePattern pattern_of(const std::vector<int64_t>& offsets, IsNear is_near) {
  TracePattern pattern;
  for (int64_t offset : offsets) note_access(pattern, kBase + static_cast<uint64_t>(offset), is_near);
  return pattern;
}

std::vector<int64_t> walk(int64_t first, int64_t step, int count) {
  std::vector<int64_t> out;
  for (int i = 0; i < count; i++) out.push_back(first + i * step);
  return out;
}

uint64_t count_of(const TracePattern& pattern, int64_t stride) {
  for (auto& s : pattern.strides) {
    if (s.count > 0 && s.stride == stride) return s.count;
  }
  return 0;
}

TEST(TracePattern, TheFirstFaultIsOfNoKind) {
  TracePattern p;
  EXPECT_EQ(note_access(p, kBase, nothing_near), TraceStep::kFirst);
  EXPECT_EQ(p.same + p.sequential + p.strided + p.random, 0u);
  EXPECT_EQ(p.last, kBase);
}

TEST(TracePattern, PagesInOrderAreSequential) {
  TracePattern p = pattern_of(walk(0, kPageSize, 101), nothing_near);
  EXPECT_EQ(p.sequential, 100u);
  EXPECT_EQ(p.same + p.strided + p.random, 0u);
}

TEST(TracePattern, ElementsThatStraddlePagesAreSequentialToo) {
  TracePattern p = pattern_of(walk(0, kPageSize + kPageSize / 5, 4), nothing_near);
  EXPECT_EQ(p.sequential, 3u);
}

TEST(TracePattern, FaultsOfOnePageAreTheSame) {
  TracePattern p = pattern_of({0, 8, 4095, 100}, nothing_near);
  EXPECT_EQ(p.same, 3u);
  EXPECT_EQ(p.sequential + p.strided + p.random, 0u);
}

TEST(TracePattern, EqualDistancesAreAStride) {
  for (int64_t stride : {int64_t{3} * 4096, int64_t{-2} * 4096, int64_t{10'000}, int64_t{1} << 30}) {
    TracePattern p = pattern_of(walk(1 << 20, stride, 50), nothing_near);
    EXPECT_GE(p.strided, 48u) << stride;
    EXPECT_LE(p.random, 1u) << stride;
    EXPECT_GE(count_of(p, stride), 48u) << stride;
  }
}

TEST(TracePattern, OnePageBackIsAStride) {
  TracePattern p = pattern_of(walk(1 << 20, -4096, 20), nothing_near);
  EXPECT_EQ(p.strided, 19u);
  EXPECT_EQ(count_of(p, -4096), 19u);
  EXPECT_EQ(p.sequential, 0u);
}

TEST(TracePattern, ScatteredFaultsAreRandom) {
  TracePattern p;
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; i++) note_access(p, kBase + random() % (uint64_t{1} << 36), nothing_near);
  EXPECT_GT(p.random, 990u);
}

// Prefetch hides the faults of a window: the next one comes after as many pages, which are near.
TEST(TracePattern, AJumpOverNearPagesIsTheSmallStepRepeated) {
  for (int64_t window : {3, 8, 64, 96}) {
    std::vector<int64_t> jumps = walk(0, window * 4096, 5);
    EXPECT_EQ(pattern_of(jumps, everything_near).sequential, 4u) << window;
    EXPECT_EQ(pattern_of(jumps, nothing_near).sequential, 0u) << window;
  }
  std::vector<int64_t> back = walk(1 << 24, -8 * 4096, 3);
  TracePattern p = pattern_of(back, everything_near);
  EXPECT_EQ(count_of(p, -4096), 2u);
  EXPECT_EQ(p.random, 0u);
}

TEST(TracePattern, JumpsThatNoWindowExplainsAreNotSmallSteps) {
  EXPECT_EQ(pattern_of({0, 97 * 4096, 500 * 4096}, everything_near).sequential, 0u);  // too far for one
  EXPECT_EQ(pattern_of({0, 2 * 4096, 7 * 4096}, everything_near).sequential, 1u);     // 2 pages: chance; 5: a window
}

TEST(TracePattern, OneAbsentPageBetweenIsEnough) {
  for (int64_t absent = 1; absent < 8; absent++) {
    auto is_near = [absent](int64_t page) { return page != kBasePage + absent; };
    EXPECT_EQ(pattern_of({0, 8 * 4096}, is_near).sequential, 0u) << absent;
  }
  // The page of the fault itself is not asked for: it was absent, else there were no fault.
  auto is_near = [](int64_t page) { return page != kBasePage + 8 && page != kBasePage; };
  EXPECT_EQ(pattern_of({0, 8 * 4096}, is_near).sequential, 1u);
}

TEST(TracePattern, AWindowOfAKnownStrideIsRecognized) {
  // Steps of 3 pages, then a window of 8 of them; of the pages between only those are near.
  std::vector<int64_t> offsets = walk(0, 3 * 4096, 3);
  offsets.push_back(offsets.back() + 8 * 3 * 4096);
  auto third_pages = [](int64_t page) { return (page - kBasePage) % 3 == 0; };
  TracePattern p = pattern_of(offsets, third_pages);
  EXPECT_GE(count_of(p, 3 * 4096), 2u);
  EXPECT_EQ(pattern_of(offsets, nothing_near).strided + 1, p.strided);
}

TEST(TracePattern, SeveralStreamsAreToldApart) {
  std::vector<int64_t> offsets;
  constexpr int64_t kFar = int64_t{1} << 30;
  for (int64_t i = 0; i < 50; i++) {
    for (int64_t s = 0; s < TracePattern::kStreams; s++) offsets.push_back(s * s * kFar + i * 4096);
  }
  TracePattern p = pattern_of(offsets, nothing_near);
  EXPECT_EQ(p.sequential, 49u * TracePattern::kStreams);
}

TEST(TracePattern, OfStreamsThatAFaultContinuesTheSimplestCounts) {
  constexpr int64_t kPage = 4096, kFirst = 100 * kPage;
  // One stream is at page 0, another comes to it in steps of ten pages.
  std::vector<int64_t> offsets = {kFirst, kFirst - 29 * kPage, kFirst - 19 * kPage, kFirst - 9 * kPage};
  TracePattern before = pattern_of(offsets, nothing_near);
  EXPECT_GE(before.strided, 1u);
  offsets.push_back(kFirst + kPage);
  TracePattern after = pattern_of(offsets, nothing_near);
  EXPECT_EQ(after.sequential, before.sequential + 1);
  EXPECT_EQ(after.strided, before.strided);
}

TEST(TracePattern, TheStreamThatRestedLongestMakesRoom) {
  TracePattern p;
  constexpr uint64_t kFar = uint64_t{1} << 30;
  note_access(p, kBase, nothing_near);
  for (uint64_t s = 1; s < TracePattern::kStreams; s++) note_access(p, kBase + s * kFar + s * s * kFar, nothing_near);
  EXPECT_EQ(note_access(p, kBase + kPageSize, nothing_near), TraceStep::kSequential);  // all are remembered
  for (uint64_t s = 1; s <= TracePattern::kStreams; s++) note_access(p, kBase + (100 + s * s) * kFar, nothing_near);
  EXPECT_EQ(note_access(p, kBase + 2 * kPageSize, nothing_near), TraceStep::kRandom);  // it is forgotten
}

TEST(TracePattern, TheMostCommonStridesAreKept) {
  TracePattern p;
  std::mt19937_64 random(2);
  for (int64_t i = 1; i <= TracePattern::kStrides; i++) trace_pattern::count_stride(p, i * 8);  // all places are taken
  // Half of all steps have one stride, among many that come once.
  for (int i = 0; i < 2000; i++) {
    trace_pattern::count_stride(p, i % 2 ? 12'288 : static_cast<int64_t>(random() % 1'000'000) + 20'000);
  }
  EXPECT_GT(count_of(p, 12'288), 0u);
  std::set<int64_t> seen;
  for (auto& s : p.strides) {
    if (s.count == 0) continue;
    EXPECT_TRUE(seen.insert(s.stride).second);
  }
}

TEST(TracePattern, EveryFaultIsCountedOnce) {
  std::mt19937_64 random(3);
  TracePattern p;
  constexpr int kFaults = 5000;
  uint64_t at = kBase;
  for (int i = 0; i < kFaults; i++) {
    switch (random() % 4) {
      case 0:
        at += kPageSize;
        break;
      case 1:
        at += 3 * kPageSize;
        break;
      case 2:
        at = kBase + random() % (uint64_t{1} << 32);
        break;
      default:
        at += 8;
    }
    note_access(p, at, [&](int64_t) { return random() % 2 == 0; });
  }
  EXPECT_EQ(p.same + p.sequential + p.strided + p.random, uint64_t{kFaults - 1});
  EXPECT_EQ(p.clock, uint64_t{kFaults});
}

}  // namespace
}  // namespace farside
