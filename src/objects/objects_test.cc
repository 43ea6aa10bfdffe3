// Far objects on a pager in this process: pointers, scopes, both paths, garbage, and threads that do all of it
// concurrently.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "farside/fiber.hpp"
#include "farside/structure.hpp"
#include "objects/test_support.h"

namespace farside::objects {
namespace {

struct Small {
  uint64_t key, value;
};
struct Line {
  uint64_t words[8];
};
struct Large {
  uint64_t words[300];
};
struct Huge {
  uint64_t words[3000];
};
// Types with owners inside have their numbers from one fixture, so each is used in one test only.
template <int test>
struct NodeOf {
  uint64_t value = 0;
  farside::unique_ptr<NodeOf> next;
};
using Node = NodeOf<0>;
using ListNode = NodeOf<1>;

void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 200000 && !condition(); i++) os::nanosleep_ns(500000);
  EXPECT_TRUE(condition());
}

// Runs work(number) in each of `fibers` fibers, and waits until all have ended.
void run_numbered_fibers(unsigned workers, uint64_t fibers, const std::function<void(uint64_t)>& work) {
  run_fibers(workers, [&] {
    std::vector<fiber> all;
    for (uint64_t f = 0; f < fibers; f++) all.emplace_back([&, f] { work(f); });
  });
}

// Evicts a segment of 64 lines of objects. If it is to be fetched as a page, `used` of its lines are accessed until it
// is evicted again. Returns whether it was fetched as a page.
bool evict_and_fetch(PathSelector& selector, Origin origin, unsigned used) {
  Segment s = {};
  s.used_units.store(4 * 64);
  s.origin.store(static_cast<uint8_t>(origin));
  if (!selector.as_page(s, ~uint64_t{0})) return false;
  selector.as_page(s, used == 64 ? ~uint64_t{0} : (uint64_t{1} << used) - 1);
  return true;
}

TEST(PathSelector, LearnsFromSegmentsFetchedAsPagesAndNoticesChanges) {
  PathSelector selector(Paths::kHybrid);
  auto pages_of = [&](unsigned count, unsigned used) {
    unsigned pages = 0;
    for (unsigned i = 0; i < count; i++) pages += evict_and_fetch(selector, Origin::kTaken, used);
    return pages;
  };
  EXPECT_EQ(pages_of(1000, 64), 1000u);  // at the start pages are preferred
  EXPECT_LT(pages_of(1000, 3), 60u);     // it takes a few to change the preference
  EXPECT_LT(pages_of(10000, 3), 40u);    // then hardly any are tried
  EXPECT_GT(pages_of(2000, 64), 1000u);  // which is enough to notice a change
  EXPECT_EQ(pages_of(1000, 64), 1000u);
  EXPECT_EQ(evict_and_fetch(selector, Origin::kMade, 3), true);  // each origin has its own record
}

TEST(PathSelector, JudgesASegmentByItsLastStay) {
  PathSelector selector(Paths::kHybrid);
  Segment s = {};
  s.used_units.store(4 * 64);
  s.origin.store(static_cast<uint8_t>(Origin::kKnown));
  EXPECT_TRUE(selector.as_page(s, ~uint64_t{0} >> 12));   // 52 of 64 lines
  EXPECT_FALSE(selector.as_page(s, ~uint64_t{0} >> 13));  // 51: less than 80 %
  EXPECT_TRUE(selector.as_page(s, 0));                    // fetched ahead and not used
  EXPECT_TRUE(PathSelector(Paths::kPageOnly).as_page(s, 1));
  EXPECT_FALSE(PathSelector(Paths::kObjectOnly).as_page(s, ~uint64_t{0}));
}

TEST(Objects, KeepWhatIsWritten) {
  ObjectFixture far(16 * kMiB);
  auto small = make_unique<Small>(Small{1, 2});
  auto large = make_unique<Large>();
  auto huge = make_unique<Huge>();
  auto byte = make_unique<char>('x');
  {
    deref_scope scope;
    for (uint64_t i = 0; i < 300; i++) large.deref_mut(scope)->words[i] = i;
    for (uint64_t i = 0; i < 3000; i++) huge.deref_mut(scope)->words[i] = i * i;
    EXPECT_EQ(small.deref(scope)->value, 2u);
    EXPECT_EQ(*byte.deref(scope), 'x');
    EXPECT_EQ(large.deref(scope)->words[299], 299u);
  }
  EXPECT_EQ(huge.load().words[2999], 2999u * 2999u);
  small.store({3, 4});
  EXPECT_EQ(small.load().key, 3u);
  auto moved = std::move(small);
  EXPECT_FALSE(small);
  EXPECT_EQ(moved.load().value, 4u);
  EXPECT_EQ(far.stats().objects, 3u);
  moved = nullptr;
  EXPECT_EQ(far.stats().objects, 2u);
}

}  // namespace
}  // namespace farside::objects

template <int test>
struct farside::far_pointers<farside::objects::NodeOf<test>> : farside::fields<&farside::objects::NodeOf<test>::next> {
};

namespace farside::objects {
namespace {

TEST(Objects, KeepTheirContentWhenFetchedOneByOne) {
  ObjectFixture far(8 * kMiB);
  constexpr uint64_t kCount = 400000;  // 32 MiB with headers
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i, i + 1, i + 2}});
  std::mt19937_64 random(1);
  for (int round = 0; round < 300000; round++) {
    uint64_t i = random() % kCount;
    deref_scope scope;
    const Line* line = lines[i].deref(scope);
    ASSERT_EQ(line->words[0], i);
    ASSERT_EQ(line->words[2] - line->words[1], 1u) << i;
    if (round % 4 == 0) {
      Line* mine = lines[i].deref_mut(scope);
      mine->words[1]++, mine->words[2]++;
    }
  }
  EXPECT_GT(far.stats().taken, 10000u);
  for (uint64_t i = 0; i < kCount; i++) ASSERT_EQ(lines[i].load().words[0], i);
  EXPECT_EQ(far.stats().objects, kCount);
}

TEST(Objects, SharedOnesLiveAsLongAsAnOwner) {
  ObjectFixture far(4 * kMiB);
  constexpr uint64_t kCount = 50000;
  std::vector<shared_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_shared<Line>(Line{{i}});
  std::vector<shared_ptr<Line>> others(lines.begin(), lines.begin() + kCount / 2);
  auto work = [&](uint64_t first) {
    for (uint64_t i = first; i < kCount / 2; i += 2) {
      shared_ptr<Line> third = others[i];
      EXPECT_GE(third.use_count(), 3);
      deref_scope scope;
      third.deref_mut(scope)->words[1] = i + 7;
    }
    forget_thread();
  };
  std::thread a(work, 0), b(work, 1);
  a.join(), b.join();
  lines.clear();
  EXPECT_EQ(far.stats().objects, kCount / 2);
  for (uint64_t i = 0; i < kCount / 2; i++) {
    ASSERT_EQ(others[i].load().words[0], i);
    ASSERT_EQ(others[i].load().words[1], i + 7);
  }
  others.clear();
  EXPECT_EQ(far.stats().objects, 0u);
}

TEST(Objects, FibersFetchThemConcurrently) {
  ObjectFixture far(2 * kMiB, false);
  constexpr uint64_t kCount = 100000, kFibers = 32;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
  run_numbered_fibers(2, kFibers, [&](uint64_t f) {
    std::mt19937_64 random(f);
    for (int i = 0; i < 8000; i++) {
      uint64_t at = random() % (kCount / kFibers) * kFibers + f;
      deref_scope scope;
      Line* line = lines[at].deref_mut(scope);
      ASSERT_EQ(line->words[0], at);
      if (i % 16 == 0) this_fiber::yield();  // inside a scope
      line->words[1]++;
    }
  });
  uint64_t written = 0;
  for (const auto& line : lines) written += line.load().words[1];
  EXPECT_EQ(written, kFibers * 8000);
  EXPECT_GT(far.stats().taken, 0u);
}

// Far memory holds little more than twice the live bytes, so garbage must be collected while fibers of one worker are
// in scopes: they must run in turns to end them, so that the evacuator can make room.
TEST(Objects, FibersWaitForRoomInTurns) {
  ObjectFixture far(4 * kMiB, false, kGiB, 32 * kMiB);
  constexpr uint64_t kCount = 220000, kFibers = 32, kReads = 20000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
  run_numbered_fibers(1, kFibers, [&](uint64_t f) {
    std::mt19937_64 random(f);
    for (uint64_t i = 0; i < kReads; i++) {
      uint64_t at = random() % kCount;
      deref_scope scope;
      const Line* line = lines[at].deref(scope);
      if (i % 8 == 0) this_fiber::yield();
      ASSERT_EQ(line->words[0], at);
    }
  });
  EXPECT_GT(far.stats().segments_freed, far.stats().segments);  // far memory was used more than once
}

TEST(Objects, APrefetchFetchesSingleObjects) {
  ObjectFixture far(2 * kMiB, false);
  constexpr uint64_t kCount = 60000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i}});
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; i++) ASSERT_NE(lines[random() % kCount].load().words[0], kCount);
  os::nanosleep_ns(20'000'000);
  uint64_t reads = far.pager().stats().get(pager::Counter::kSubpageReads), taken = far.stats().taken;
  for (uint64_t i = 0; i < kCount; i += 500) {
    prefetch(&lines[i], 500);
    for (uint64_t j = i; j < i + 500; j++) ASSERT_EQ(lines[j].load().words[0], j);
  }
  EXPECT_GT(far.stats().taken, taken);
  EXPECT_GT(far.pager().stats().get(pager::Counter::kSubpageReads), reads);
}

// A non-temporal scan over eight times the budget does not displace the pages of objects that are used all the time.
TEST(Objects, NonTemporalAccessesDisplaceLittle) {
  ObjectFixture far(4 * kMiB);
  constexpr uint64_t kHot = 20000, kCold = 400000;
  std::vector<unique_ptr<Line>> cold(kCold), hot(kHot);
  for (uint64_t i = 0; i < kCold; i++) cold[i] = make_unique<Line>(Line{{i}});
  for (uint64_t i = 0; i < kHot; i++) hot[i] = make_unique<Line>(Line{{i}});
  auto is_near = [&](const unique_ptr<Line>& line) {
    return far.pager().word(*detail::access::word(line) >> 16).is(pager::PageState::kNear);
  };
  auto scan = [&](bool non_temporal) {
    for (int i = 0; i < 3; i++) {
      for (const auto& line : hot) line.load();
    }
    for (const auto& line : cold) {
      deref_scope scope;
      (void)(non_temporal ? line.deref<true>(scope) : line.deref(scope))->words[0];
    }
    uint64_t near = 0;
    for (const auto& line : hot) near += is_near(line);
    return near;
  };
  uint64_t displaced = kHot - scan(false), non_temporal = kHot - scan(true);
  EXPECT_LT(non_temporal, displaced / 2) << displaced;
}

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
      near += far.pager().word(*owner >> 16).is(pager::PageState::kNear);
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
  for (int i = 0; i < 200000; i++) {
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
  for (uint64_t i = 0; i < kCount; i++) {
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

TEST(Objects, PointersInsideObjectsAreUpdated) {
  ObjectFixture far(2 * kMiB);
  constexpr uint64_t kLists = 2000, kLength = 60;
  std::vector<unique_ptr<Node>> heads(kLists);
  for (uint64_t at = 0; at < kLength; at++) {
    for (uint64_t list = 0; list < kLists; list++) {
      auto node = make_unique<Node>();
      {
        deref_scope scope;
        Node* n = node.deref_mut(scope);
        n->value = list * 1000 + at;
        n->next = std::move(heads[list]);
      }
      heads[list] = std::move(node);
    }
  }
  for (int round = 0; round < 3; round++) {
    for (uint64_t list = 0; list < kLists; list++) {
      deref_scope scope;
      const unique_ptr<Node>* at = &heads[(list * 7919) % kLists];
      for (uint64_t i = kLength; i > 0; i--) {
        const Node* node = at->deref(scope);
        ASSERT_NE(node, nullptr);
        ASSERT_EQ(node->value, (list * 7919) % kLists * 1000 + i - 1);
        at = &node->next;
      }
      ASSERT_FALSE(*at);
    }
  }
  // The next owner is moved out of the object that the assignment destroys.
  for (uint64_t i = 0; i < kLength / 2; i++) {
    deref_scope scope;
    heads[1] = std::move(heads[1].deref_mut(scope)->next);
    ASSERT_EQ(heads[1].deref(scope)->value, 1000 + kLength - 2 - i);
  }
  EXPECT_EQ(far.stats().objects, kLists * kLength - kLength / 2);
  EXPECT_EQ(heads[3].modify([](Node& node) { return ++node.value; }), 3000 + kLength);
  for (uint64_t list = 0; list < kLists; list += 2) heads[list] = nullptr;
  EXPECT_EQ(far.stats().objects, kLists / 2 * kLength - kLength / 2);
}

// A call on a memory server, played by the test: follows the owners of a list in the store's copy of far memory.
// Returns whether the list was found as it is; nothing if objects were being moved.
std::optional<bool> walk_in_store(ObjectFixture& far, uint64_t structures, const ListNode* head, uint64_t first,
                                  uint64_t length) {
  SignalsBlocked blocked;
  if (int error = stop_moves(structures)) {
    EXPECT_EQ(error, -EBUSY);
    return std::nullopt;
  }
  std::span<std::byte> memory[8];
  ssize_t runs = list_memory(structures, memory);
  EXPECT_EQ(runs, 1);
  pager::Pager::CallRange range = {memory[0].data(), memory[0].size(), false};
  EXPECT_EQ(far.pager().begin_call({&range, 1}), 0);
  bool right = true;
  auto address = reinterpret_cast<uint64_t>(head);
  for (uint64_t at = 0; right && at <= length; at++) {
    right = (address != 0) == (at < length) &&
            (address == 0 || address - reinterpret_cast<uint64_t>(range.address) < range.bytes);
    if (!right || address == 0) break;
    uint64_t node[2];  // its value, and the owner of the next one
    memcpy(node, far.in_store(address), sizeof node);
    PtrWord next(node[1]);
    right = node[0] == first + at && !next.is_moving();
    address = next.address();
  }
  far.pager().end_call({&range, 1});
  permit_moves(structures);
  return right;
}

// Threads use lists, replace nodes, and make garbage, so that the objects are moved at any time, while others call
// functions that follow the owners inside them. Each list has a lock, as the program's objects would.
TEST(Objects, CallsFindThemWhereTheirOwnersSay) {
  ObjectFixture far(4 * kMiB, false);
  structure nodes({64 * kMiB, nullptr, 0});
  constexpr uint64_t kLists = 600, kLength = 100;
  constexpr unsigned kUsers = 2, kCallers = 2;
  struct List {
    Mutex lock;
    uint64_t first = 0;
    unique_ptr<ListNode> head;
  };
  std::vector<List> lists(kLists);
  auto make_list = [&](List& list, uint64_t first) {
    list.first = first;
    list.head = nullptr;
    for (uint64_t at = kLength; at > 0; at--) {
      auto node = make_unique_in<ListNode>(nodes);
      deref_scope scope;
      ListNode* n = node.deref_mut(scope);
      n->value = first + at - 1;
      n->next = std::move(list.head);
      list.head = std::move(node);
    }
  };
  for (uint64_t i = 0; i < kLists; i++) make_list(lists[i], i * 1000);
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> calls{0}, refused{0};
  auto use = [&](unsigned me) {
    for (std::mt19937_64 random(me); !ends;) {
      List& list = lists[random() % kLists];
      LockGuard hold(list.lock);
      std::optional<moves_stopped> stopped;
      if (random() % 4 == 0) stopped.emplace(nodes);
      if (random() % 8 == 0) make_list(list, random() % 1000000);
      deref_scope scope;
      const unique_ptr<ListNode>* at = &list.head;
      for (uint64_t i = 0; i < kLength; i++, at = &at->deref(scope)->next)
        EXPECT_EQ(at->deref(scope)->value, list.first + i);
    }
    forget_thread();
  };
  auto call = [&](unsigned me) {
    for (std::mt19937_64 random(100 + me); !ends;) {
      List& list = lists[random() % kLists];
      LockGuard hold(list.lock);
      deref_scope scope;
      auto right = walk_in_store(far, uint64_t{1} << nodes.id(), list.head.address(scope), list.first, kLength);
      if (right && !*right) ADD_FAILURE() << "a list is not as its owners say", ends = true;
      (right ? calls : refused)++;
    }
    forget_thread();
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kUsers; t++) threads.emplace_back(use, t);
  for (unsigned t = 0; t < kCallers; t++) threads.emplace_back(call, t);
  wait_for([&] { return ends || (calls > 1000 && far.stats().taken > 10000 && far.stats().moved > 1000); });
  ends = true;
  for (auto& t : threads) t.join();
  EXPECT_LT(refused, calls / 10);
}

TEST(Objects, AThreadThatStopsMovesUsesThemWhereTheyAre) {
  ObjectFixture far(4 * kMiB, false);
  structure in({64 * kMiB, nullptr, 0});
  constexpr uint64_t kCount = 100000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique_in<Line>(in, Line{{i}});
  std::mt19937_64 random(3);
  auto use = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
      deref_scope scope;
      uint64_t at = random() % kCount;
      Line* line = lines[at].deref_mut(scope);
      ASSERT_EQ(line->words[0], at);
      line->words[1]++;
    }
  };
  auto moves = [&] { return far.stats().taken + far.stats().moved; };
  use(60000);
  EXPECT_GT(far.stats().taken, 1000u);
  std::atomic<bool> done{false};
  std::thread other;
  {
    moves_stopped stopped(in), again(in);
    uint64_t before = moves();
    use(10000);
    EXPECT_EQ(moves(), before);
    other = std::thread([&] {
      for (auto& line : lines) line.modify([](Line& l) { l.words[2]++; });
      done = true;
      forget_thread();
    });
    use(10000);
    EXPECT_EQ(moves(), before);
    EXPECT_FALSE(done);
    deref_scope scope;
    EXPECT_THROW(moves_stopped{in}, std::system_error);
  }
  other.join();
  EXPECT_TRUE(done);
  uint64_t changes = 0;
  for (uint64_t i = 0; i < kCount; i++) {
    Line line = lines[i].load();
    ASSERT_EQ(line.words[0], i);
    ASSERT_EQ(line.words[2], 1u);
    changes += line.words[1];
  }
  EXPECT_EQ(changes, 80000u);
}

// Garbage is collected between the stops, so allocations and moves find room in a structure that is nearly full.
TEST(Objects, ThereIsRoomAlthoughMovesAreStoppedAgainAndAgain) {
  ObjectFixture far(4 * kMiB, false);
  structure in({12 * kMiB, nullptr, 0});
  constexpr uint64_t kCount = 85000, kReplaced = 100000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique_in<Line>(in, Line{{i}});
  std::atomic<bool> ends{false};
  std::thread other([&] {
    while (!ends) {
      moves_stopped stopped(in);
      os::nanosleep_ns(2'000'000);
    }
    forget_thread();
  });
  std::mt19937_64 random(8);
  for (uint64_t i = 0; i < kReplaced; i++) {
    uint64_t at = random() % kCount;
    ASSERT_EQ(lines[at].load().words[0], at);
    lines[at] = nullptr;
    ASSERT_NO_THROW(lines[at] = make_unique_in<Line>(in, Line{{at}}));
  }
  ends = true;
  other.join();
  EXPECT_GT(far.stats().moved, 0u);
}

// A fiber that stops moves waits for those of other fibers of its worker, which wait for the store.
TEST(Objects, FibersStopMovesInTurns) {
  ObjectFixture far(4 * kMiB, false);
  structure in({64 * kMiB, nullptr, 0});
  constexpr uint64_t kCount = 100000, kFibers = 8, kUses = 4000;
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique_in<Line>(in, Line{{i}});
  std::atomic<uint64_t> right{0};
  run_numbered_fibers(2, kFibers, [&](uint64_t me) {
    std::mt19937_64 random(me);
    for (uint64_t i = 0; i < kUses; i++) {
      std::optional<moves_stopped> stopped;
      if (i % 16 == me) stopped.emplace(in);
      uint64_t at = random() % kCount;
      deref_scope scope;
      if (lines[at].deref(scope)->words[0] == at) right++;
    }
  });
  EXPECT_EQ(right, kFibers * kUses);
  EXPECT_GT(far.stats().taken, 1000u);
}

// Threads read and write their own and common objects, destroy and create them, and move their pointers, with a quarter
// of the memory near. Each thread knows the expected content.
TEST(Objects, ManyThreadsLoseNothing) {
  ObjectFixture far(4 * kMiB, false);
  constexpr unsigned kThreads = 4;
  constexpr uint64_t kOwn = 30000, kCommon = 20000, kRounds = 150000;
  std::vector<unique_ptr<Line>> common(kCommon);  // each thread counts in its own word of each
  for (uint64_t i = 0; i < kCommon; i++) common[i] = make_unique<Line>();
  std::vector<std::vector<uint32_t>> counted(kThreads, std::vector<uint32_t>(kCommon));
  auto work = [&](unsigned me) {
    std::mt19937_64 random(me);
    std::vector<unique_ptr<Line>> own(kOwn);
    std::vector<uint64_t> shadow(kOwn);
    for (uint64_t round = 0; round < kRounds; round++) {
      uint64_t i = random() % kOwn, kind = random() % 10;
      if (kind < 4) {
        uint64_t c = random() % 3 == 0 ? random() % kCommon : random() % (kCommon / 20);
        deref_scope scope;
        uint64_t* word = &common[c].deref_mut(scope)->words[me];
        ASSERT_EQ(*word, counted[me][c]) << "common " << c;
        *word = ++counted[me][c];
      } else if (!own[i]) {
        shadow[i] = random();
        own[i] = make_unique<Line>(Line{{shadow[i], ~shadow[i]}});
      } else if (kind == 4) {
        own[i] = nullptr;
      } else if (kind == 5) {
        uint64_t j = random() % kOwn;
        own[i].swap(own[j]);
        std::swap(shadow[i], shadow[j]);
      } else {
        deref_scope scope;
        ASSERT_EQ(own[i].deref(scope)->words[0], shadow[i]);
        ASSERT_EQ(own[i].deref(scope)->words[1], ~shadow[i]);
        if (kind > 7) {
          Line* line = own[i].deref_mut(scope);
          line->words[0] = ++shadow[i];
          line->words[1] = ~shadow[i];
        }
      }
    }
    for (uint64_t i = 0; i < kOwn; i++) {
      if (own[i]) {
        ASSERT_EQ(own[i].load().words[0], shadow[i]);
      }
    }
    own.clear();
    forget_thread();
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(work, t);
  for (auto& t : threads) t.join();
  for (uint64_t i = 0; i < kCommon; i++) {
    Line line = common[i].load();
    for (unsigned t = 0; t < kThreads; t++) ASSERT_EQ(line.words[t], counted[t][i]);
  }
  EXPECT_EQ(far.stats().objects, kCommon);
  EXPECT_GT(far.stats().taken, 0u);
  EXPECT_GT(far.stats().moved, 0u);
}

}  // namespace
}  // namespace farside::objects
