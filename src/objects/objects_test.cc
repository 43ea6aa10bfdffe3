// Far objects on a pager in this process: pointers, scopes, both paths, garbage, and threads that do all of it
// concurrently.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "objects/test_objects.h"

namespace farside::objects {
namespace {

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
  PathSelector selector(Paths::kHybrid, 0.8);
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
  PathSelector selector(Paths::kHybrid, 0.8);
  Segment s = {};
  s.used_units.store(4 * 64);
  s.origin.store(static_cast<uint8_t>(Origin::kKnown));
  EXPECT_TRUE(selector.as_page(s, ~uint64_t{0} >> 12));   // 52 of 64 lines
  EXPECT_FALSE(selector.as_page(s, ~uint64_t{0} >> 13));  // 51: less than 80 %
  EXPECT_TRUE(selector.as_page(s, 0));                    // fetched ahead and not used
  PathSelector whole(Paths::kHybrid, 1), any(Paths::kHybrid, 0.01);
  EXPECT_TRUE(whole.as_page(s, ~uint64_t{0}));
  EXPECT_FALSE(whole.as_page(s, ~uint64_t{0} >> 1));
  EXPECT_TRUE(any.as_page(s, 1));
  EXPECT_TRUE(PathSelector(Paths::kPageOnly, 0.8).as_page(s, 1));
  EXPECT_FALSE(PathSelector(Paths::kObjectOnly, 0.8).as_page(s, ~uint64_t{0}));
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

TEST(Objects, KeepTheirContentWhenFetchedOneByOne) {
  ObjectFixture far(8 * kMiB);
  constexpr uint64_t kCount = 400000;  // 32 MiB with headers
  std::vector<unique_ptr<Line>> lines(kCount);
  for (uint64_t i = 0; i < kCount; i++) lines[i] = make_unique<Line>(Line{{i, i + 1, i + 2}});
  std::mt19937_64 random(1);
  for (int round = 0; round < (kSanitized ? 60000 : 300000); round++) {
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
    return far.pager().table().word(*detail::access::word(line) >> 16).is(pager::PageState::kNear);
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

// An object that fills a segment.
struct Page {
  uint64_t words[500];
};

// Each object has a segment of its own, so a near page without an access bit shows that the clock has taken the bit.
TEST(Objects, UsesOfNearOnesAreSeenByThePolicy) {
  ObjectFixture far(4 * kMiB);
  std::vector<unique_ptr<Page>> pages(2000);
  for (uint64_t i = 0; i < pages.size(); i++) pages[i] = make_unique<Page>(Page{{i}});
  uint64_t other = 1;
  auto word = [&] { return *detail::access::word(pages[0]); };
  auto address = [&] { return word() >> FARSIDE_OWNER_ADDRESS_SHIFT_; };
  auto page = [&] { return far.pager().table().word(address()); };
  auto accessible = [&] { return !page().is(pager::PageState::kNear) || farside_object_is_accessible(word(), 0); };
  for (int turns = 0; accessible(); turns++) {
    ASSERT_LT(turns, 10000);
    EXPECT_EQ(pages[0].load().words[0], 0u);
    for (int i = 0; i < 20; i++, other = other % 1999 + 1) EXPECT_EQ(pages[other].load().words[0], other);
    os::nanosleep_ns(1'000'000);
  }
  pager::PageTable& table = far.pager().table();
  table[table.index_of(address())].clear(pager::PageWord::kHot);
  EXPECT_EQ(pages[0].load().words[0], 0u);
  EXPECT_TRUE(page().has(pager::PageWord::kHot));
  EXPECT_TRUE(accessible());
}

// Of each segment one line is used. Whether the clock has taken its access bit or not, the path selector counts it.
TEST(Objects, LinesWhoseAccessBitsWereTakenStillCount) {
  ObjectFixture far(4 * kMiB);
  constexpr uint64_t kSegment = 56;  // lines
  std::vector<unique_ptr<Line>> lines(200 * kSegment);
  for (uint64_t i = 0; i < lines.size(); i++) lines[i] = make_unique<Line>(Line{{i}});
  std::vector<unique_ptr<Page>> pages(2000);
  for (auto& page : pages) page = make_unique<Page>();
  auto walk = [&] {
    for (auto& page : pages) page.load();
    os::nanosleep_ns(10'000'000);
  };
  for (uint64_t i = 0; i < lines.size(); i += kSegment) ASSERT_EQ(lines[i].load().words[0], i);
  for (int turn = 0; turn < 20; turn++) {
    for (int i = 0; i < 10; i++) pages[turn * 10 + i].load();
    os::nanosleep_ns(10'000'000);
  }
  walk();
  walk();
  wait_for([&] { return far.stats().segments_object_path >= 196; });
}

// Threads read and write their own and common objects, destroy and create them, and move their pointers, with a quarter
// of the memory near. Each thread knows the expected content.
TEST(Objects, ManyThreadsLoseNothing) {
  ObjectFixture far(4 * kMiB, false);
  constexpr unsigned kThreads = 4;
  constexpr uint64_t kOwn = 30000, kCommon = 20000, kRounds = kSanitized ? 60000 : 150000;
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
