// What becomes of objects that are no longer used, or not now: garbage, evicted objects of structures, scopes that
// delay moving.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "objects/test_objects.h"

namespace farside::objects {
namespace {

TEST(Objects, GarbageIsCollectedAndSurvivorsStay) {
  ObjectFixture far(64 * kMiB);
  constexpr uint64_t kCount = 100000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
  uint64_t before = far.stats().segments;
  for (uint64_t i = 0; i < kCount; i++) {
    if (i % 10 != 0) lines[i] = nullptr;
  }
  wait_for([&] { return far.stats().segments < before / 5; });
  EXPECT_GT(far.stats().moved, kCount / 10 / 2);
  for (uint64_t i = 0; i < kCount; i += 10) ASSERT_EQ(lines[i].load().words[0], i);
}

// Two scopes overlap, so that a segment stays closed while the epoch rises, and the objects are destroyed in the second
// one. The segments are not used again before it ends, even if the evacuator sees the death before the thread goes on.
TEST(Objects, SegmentsThatDieInAScopeAreUsedAgainAfterIt) {
  ObjectFixture far(64 * kMiB);
  constexpr uint64_t kCount = 200;
  constexpr int kTries = 20000;
#ifdef FARSIDE_EXPENSIVE_CHECKS
  inject::arm_pause(
      "objects:dead", [](void*) { os::nanosleep_ns(2'000'000); }, nullptr);
#endif
  int closed = 0;
  for (int attempt = 0; attempt < 50 && closed < 5; attempt++) {
    std::vector<unique_ptr<Line>> lines(kCount);
    for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
    for (uint64_t i = 0; i < kCount; i++) {
      if (i % 5 < 3) lines[i] = nullptr;  // more than half: the segments are closed
    }
    auto use_all = [&](deref_scope& scope) {
      for (uint64_t i = 0; i < kCount; i++) {
        if (!lines[i]) continue;
        EXPECT_EQ(lines[i].deref(scope)->words[0], i);
      }
      return Epochs::here().held > 0;
    };
    std::atomic<bool> is_held{false}, is_held_twice{false}, gives_up{false};
    std::thread first([&] {
      for (int i = 0; i < kTries && !is_held; i++) {
        deref_scope scope;
        if (!use_all(scope)) continue;
        is_held = true;
        while (!is_held_twice) os::nanosleep_ns(100'000);
      }
      gives_up = true;
      forget_thread();
    });
    while (!is_held && !gives_up) os::nanosleep_ns(100'000);
    if (is_held) {
      os::nanosleep_ns(2'000'000);
      deref_scope scope;
      closed += use_all(scope);
      is_held_twice = true;
      first.join();
      lines.clear();
    } else {
      first.join();
    }
  }
#ifdef FARSIDE_EXPENSIVE_CHECKS
  inject::arm_pause("objects:dead", nullptr, nullptr);
#endif
  EXPECT_GT(closed, 0);
  wait_for([&] { return far.stats().segments < 10; });
}

// Far segments are emptied without being fetched: of each page, only headers and live objects are read.
TEST(Objects, FarGarbageIsCollectedWithoutFetchingPages) {
  for (bool in_place : {true, false}) {
    ObjectFixture far(8 * kMiB, in_place);
    constexpr uint64_t kCount = 500000, kEvery = 16;
    std::vector<unique_ptr<Line>> lines(kCount);
    for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
    uint64_t before = far.stats().segments, fetched = far.pager().stats().get(pager::Counter::kBytesFetched);
    for (uint64_t i = 0; i < kCount; i++) {
      if (i % kEvery != 0) lines[i] = nullptr;
      else if (i % (2 * kEvery) != 0) std::swap(lines[i], lines[i - 1]);  // owners move while it is emptied
    }
    wait_for([&] { return far.stats().segments < before / 4; });
    EXPECT_GT(far.stats().moved, 1000u);
    EXPECT_LT(far.pager().stats().get(pager::Counter::kBytesFetched) - fetched, before * kPageSize / 3);
    for (uint64_t i = 0; i < kCount; i += kEvery) {
      bool swapped = i % (2 * kEvery) != 0;
      ASSERT_EQ(lines[swapped ? i - 1 : i].load().words[0], i);
    }
  }
}

TEST(Objects, OfAStructureAreEvictedByItsPolicyAndListed) {
  ObjectFixture far(8 * kMiB, false);
  EXPECT_EQ(
      [] {
        farside_structure_options none = {};
        return farside_structure_create(&none);
      }(),
      -EINVAL);
  EXPECT_THROW(farside::structure({kMiB, "newest", 0}), std::system_error);
  structure cache({64 * kMiB, "lru", 1}), quiet({64 * kMiB, nullptr, 0});
  constexpr uint64_t kCount = 300000;
  std::vector<unique_ptr<Line>> lines(kCount), others(1000);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique_in<Line>(cache, Line{{i}});
  for (auto& other : others) other = make_unique_in<Line>(quiet, Line{{7}});
  uint64_t listed = 0, taken = 0, near = 0;
  do {
    taken = cache.take_evicted([&](uint64_t* owner) {
      auto* line = reinterpret_cast<unique_ptr<Line>*>(owner);
      ASSERT_TRUE(line >= &lines.front() && line <= &lines.back());
      listed++;
      near += far.pager().table().word(*owner >> 16).is(pager::PageState::kNear);
    });
  } while (taken > 0);
  EXPECT_GT(listed, 20000u);  // the last 1024 evicted pages; others were dropped
  EXPECT_LT(near, listed / 10);
  EXPECT_EQ(quiet.take_evicted([](uint64_t*) {}), 0u);
  for (uint64_t i = 0; i < kCount; i += 7) ASSERT_EQ(lines[i].load().words[0], i);
  for (const auto& other : others) ASSERT_EQ(other.load().words[0], 7u);
}

TEST(Objects, AStructureIsLimitedToItsCapacity) {
  ObjectFixture far(8 * kMiB, false);
  structure small({32 * kMiB, nullptr, 0});
  std::vector<unique_ptr<Line>> lines;
  EXPECT_THROW(for (;;) lines.push_back(make_unique_in<Line>(small, Line{{lines.size()}})), std::bad_alloc);
  EXPECT_GT(lines.size() * sizeof(Line), 24 * kMiB);
  EXPECT_LE(far.stats().segments, 32 * kMiB / kPageSize);
  std::mt19937_64 random(3);
  for (int i = 0; i < (kSanitized ? 40000 : 200000); i++) {
    uint64_t at = random() % lines.size();
    ASSERT_EQ(lines[at].load().words[0], at);
  }
  make_unique<Line>();  // of no structure
}

TEST(Objects, ALongScopeDelaysMovingButNotEviction) {
  ObjectFixture far(4 * kMiB);
  constexpr uint64_t kCount = 200000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
  deref_scope scope;
  std::vector<const Line*> raw(kCount);
  std::mt19937_64 random(2);
  // Every object stays valid through its raw pointer, although the objects are eight times as large as the budget.
  uint64_t moved = 0;
  for (uint64_t i = 0; i < kCount; i++) raw[i] = lines[i].deref(scope);
  uint64_t evictions = far.pager().stats().get(pager::Counter::kEvictions);
  moved = far.stats().moved + far.stats().taken;
  for (uint64_t i = 0; i < (kSanitized ? kCount / 5 : kCount); i++) {
    uint64_t at = random() % kCount;
    ASSERT_EQ(raw[at]->words[0], at);
    ASSERT_EQ(lines[at].deref(scope), raw[at]);
  }
  EXPECT_GT(far.pager().stats().get(pager::Counter::kEvictions), evictions);
  EXPECT_EQ(far.stats().moved + far.stats().taken, moved);
}

// With FARSIDE_OBJECT_UNFETCHED, as for calls on a server: other threads use the objects meanwhile, and have them
// moved.
TEST(Objects, AnAddressThatIsNotFetchedStaysUntilTheScopeEnds) {
  ObjectFixture far(4 * kMiB);
  constexpr uint64_t kCount = 100000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
  std::atomic<bool> ends{false};
  std::vector<std::thread> others;
  for (unsigned t = 0; t < 2; t++) {
    others.emplace_back([&, t] {
      for (std::mt19937_64 random(t); !ends;) {
        deref_scope scope;
        uint64_t at = random() % kCount;
        if (lines[at].deref(scope)->words[0] != at) ends = true;
      }
      forget_thread();
    });
  }
  wait_for([&] { return far.stats().taken > 10000; });
  std::mt19937_64 random(9);
  for (int round = 0; round < 100; round++) {
    deref_scope scope;
    std::vector<std::pair<uint64_t, const Line*>> located(500);
    for (auto& [at, line] : located) line = lines[at = random() % kCount].address(scope);
    os::nanosleep_ns(1000000);
    for (const auto& [at, line] : located) {
      ASSERT_EQ(lines[at].address(scope), line);
      ASSERT_EQ(line->words[0], at);
    }
  }
  EXPECT_FALSE(ends.exchange(true));
  for (std::thread& other : others) other.join();
}

TEST(Objects, NothingIsFetchedForAnAddress) {
  ObjectFixture far(4 * kMiB);
  constexpr uint64_t kCount = 100000;
  std::vector<unique_ptr<Huge>> objects(200);
  std::vector<unique_ptr<Line>> lines(kCount);
  for (auto& object : objects) object = make_unique<Huge>();
  for (auto& line : lines) line = make_unique<Line>();
  uint64_t faults = far.pager().stats().get(pager::Counter::kMajorFaults), taken = far.stats().taken;
  deref_scope scope;
  for (auto& object : objects) EXPECT_NE(object.address(scope), nullptr);
  for (auto& line : lines) EXPECT_NE(line.address(scope), nullptr);
  EXPECT_EQ(far.pager().stats().get(pager::Counter::kMajorFaults), faults);
  EXPECT_EQ(far.stats().taken, taken);
}

}  // namespace
}  // namespace farside::objects
