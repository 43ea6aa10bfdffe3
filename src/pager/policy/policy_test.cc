// Tests of the policies: no page is lost or duplicated, and the right pages are first. The words of a table are changed
// as the fault path and evictors would; no memory is paged. hit_rates_test.cc measures how good the choices are.
#include "pager/policy/new_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "pager/policy/policy_set.h"
#include "pager/policy/shares.h"

namespace farside::pager {
namespace {

constexpr PolicyKind kKinds[] = {PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kPriority, PolicyKind::kTwoQueue};

class Table : public PageTable {
 public:
  explicit Table(uint64_t pages) : PageTable(reinterpret_cast<std::byte*>(uint64_t{1} << 40), pages * kPageSize) {
    for (PageIndex page = 0; page < pages; page++) (*this)[page].force(PageWord().with_state(PageState::kUntouched));
  }
  void make_near(Policy& policy, unsigned shard, PageIndex page, uint64_t flags = 0) {
    PageWord now = (*this)[page].load();
    if (!now.is(PageState::kFetching)) (*this)[page].force(now.with_state(PageState::kFetching));
    (*this)[page].update([&](PageWord w) { return w.with_state(PageState::kNear).with(flags); });
    policy.insert(shard, page);
  }
  void evict(PageIndex page) {
    (*this)[page].force((*this)[page].load().with_state(PageState::kUntouched).without(PageWord::kHot));
  }
  void set_priority(PageIndex page, unsigned priority) {
    (*this)[page].set(uint64_t{priority} << PageWord::kPriorityShift);
  }
};

std::vector<PageIndex> take(Policy& policy, size_t count) {
  std::vector<PageIndex> pages(count);
  pages.resize(policy.select(0, pages));
  return pages;
}

// Takes all pages that select finds, batch after batch.
std::vector<PageIndex> drain(Policy& policy, size_t batch = 128) {
  std::vector<PageIndex> all;
  for (auto pages = take(policy, batch); !pages.empty(); pages = take(policy, batch)) {
    all.insert(all.end(), pages.begin(), pages.end());
  }
  return all;
}

TEST(Shares, AddUpAndStarveNone) {
  const uint64_t sizes[] = {1, 1000000, 0, 50, 300000};
  size_t sums[5] = {};
  constexpr size_t kTurns = 100000, kWanted = 128;
  for (uint32_t turn = 0; turn < kTurns; turn++) {
    size_t shares[5], sum = 0;
    share_out(kWanted, turn, sizes, shares);
    for (size_t i = 0; i < 5; i++) sums[i] += shares[i], sum += shares[i];
    ASSERT_EQ(sum, kWanted);
  }
  for (size_t i = 0; i < 5; i++) {
    double fair = static_cast<double>(sizes[i]) / 1300051 * kTurns * kWanted;
    EXPECT_NEAR(static_cast<double>(sums[i]), fair, 2 + fair / 100) << i;
  }
}

TEST(Shares, OfNothingAreZero) {
  const uint64_t sizes[] = {0, 0};
  size_t shares[] = {7, 7};
  share_out(10, 3, sizes, shares);
  EXPECT_EQ(shares[0] + shares[1], 0u);
}

class EveryPolicy : public testing::TestWithParam<PolicyKind> {
 protected:
  static constexpr PageIndex kPages = 5000;
  Table table_{kPages};
  std::unique_ptr<Policy> policy_{new_policy(GetParam(), table_)};
};

TEST_P(EveryPolicy, SelectsEachPageOnce) {
  std::mt19937 random(1);
  for (PageIndex page = 0; page < kPages; page++) {
    table_.set_priority(page, random() % 4);
    table_.make_near(*policy_, random() % 20, page, random() % 2 ? PageWord::kHot : 0);
    policy_->insert(random() % 20, page);  // must not add a second entry
  }
  EXPECT_EQ(policy_->queued(), kPages);
  std::vector<PageIndex> all = drain(*policy_);
  EXPECT_EQ(all.size(), kPages);
  EXPECT_EQ(std::set<PageIndex>(all.begin(), all.end()).size(), kPages);
  EXPECT_EQ(policy_->queued(), 0u);
  EXPECT_EQ(policy_->name(), policy_name(GetParam()));
}

TEST_P(EveryPolicy, FindsPagesWhenAllAreHotAgainAndAgain) {
  for (PageIndex page = 0; page < kPages; page++) table_.make_near(*policy_, page % 3, page);
  for (int i = 0; i < 10; i++) {
    for (PageIndex page = 0; page < kPages; page++) table_[page].set(PageWord::kHot);
    EXPECT_EQ(take(*policy_, 128).size(), 128u) << i;
  }
}

TEST_P(EveryPolicy, IsNotDelayedByPagesThatAreNotNear) {
  for (PageIndex page = 0; page < kPages; page++) table_.make_near(*policy_, 0, page);
  for (PageIndex page = 0; page < kPages - 10; page++) table_.evict(page);
  size_t found = 0;
  for (int i = 0; i < 10; i++) found += take(*policy_, 128).size();
  EXPECT_EQ(found, 10u);
  EXPECT_EQ(policy_->queued(), 0u);
}

TEST_P(EveryPolicy, TakesFromAllShardsInProportion) {
  for (PageIndex page = 0; page < kPages; page++) table_.make_near(*policy_, page % 10 == 0 ? 1 : 2, page);
  std::vector<PageIndex> first = take(*policy_, 1000);
  auto small = std::count_if(first.begin(), first.end(), [](PageIndex page) { return page % 10 == 0; });
  EXPECT_NEAR(static_cast<double>(small), 100, 2);
}

// Faulting threads and evictors run concurrently. At the end every near page has exactly one entry.
TEST_P(EveryPolicy, LosesNothingAmongThreads) {
  constexpr unsigned kThreads = 3, kEvictors = 2;
  constexpr int kRounds = 30000;
  std::atomic<unsigned> running{kThreads};
  auto fault = [&](unsigned thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < kRounds; i++) {
      PageIndex page = random() % kPages;
      PageWord w = table_[page].load();
      if (w.is(PageState::kNear)) table_[page].set(PageWord::kHot);
      if (!w.is(PageState::kUntouched) || !table_[page].try_change(w, w.with_state(PageState::kFetching))) continue;
      if (random() % 4 == 0) table_.set_priority(page, 1 + random() % 3);
      table_.make_near(*policy_, thread, page);
    }
    running--;
  };
  auto evict = [&](unsigned evictor) {
    PageIndex batch[64];
    while (running > 0) {
      size_t found = policy_->select(evictor, batch);
      for (size_t i = 0; i < found; i++) {
        PageWord w = table_[batch[i]].load();
        if (w.is(PageState::kNear) && table_[batch[i]].try_change(w, w.with_state(PageState::kEvicting))) {
          table_[batch[i]].update([](PageWord now) { return now.with_state(PageState::kUntouched); });
        } else if (w.is(PageState::kNear)) {
          policy_->insert(evictor, batch[i]);
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(fault, t);
  for (unsigned e = 0; e < kEvictors; e++) threads.emplace_back(evict, e);
  for (auto& t : threads) t.join();
  std::set<PageIndex> near;
  for (PageIndex page = 0; page < kPages; page++) {
    if (table_[page].load().is(PageState::kNear)) near.insert(page);
  }
  std::vector<PageIndex> left = drain(*policy_);
  EXPECT_EQ(std::set<PageIndex>(left.begin(), left.end()), near);
  EXPECT_EQ(left.size(), near.size());
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryPolicy, testing::ValuesIn(kKinds), [](const auto& kind) {
  std::string name(policy_name(kind.param));
  std::erase(name, '-');
  return name;
});

TEST(Fifo, IsFirstInFirstOut) {
  Table table(1000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kFifo, table));
  for (PageIndex page = 0; page < 1000; page++) table.make_near(*policy, 3, page, PageWord::kHot);
  std::vector<PageIndex> all = drain(*policy, 100);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
}

TEST(Priority, SparesHotPagesOnce) {
  Table table(1000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kPriority, table));
  for (PageIndex page = 0; page < 1000; page++) table.make_near(*policy, 0, page, page < 100 ? PageWord::kHot : 0);
  std::vector<PageIndex> all = drain(*policy, 50);
  ASSERT_EQ(all.size(), 1000u);
  for (size_t i = 0; i < 1000; i++) ASSERT_EQ(all[i], i < 900 ? 100 + i : i - 900);
}

// Page 0 is used once at the start, page 1 all the time, others once each: 0 is evicted, 1 never.
TEST(Lru, KeepsRecentlyUsedPages) {
  constexpr PageIndex kNear = 1000, kAll = 8000;
  Table table(kAll);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kLru, table));
  for (PageIndex page = 0; page < kNear; page++) table.make_near(*policy, 0, page);
  table[0].set(PageWord::kHot);
  for (PageIndex page = kNear; page < kAll; page += 20) {
    table[1].set(PageWord::kHot);
    for (PageIndex out : take(*policy, 20)) table.evict(out);
    for (PageIndex i = 0; i < 20; i++) table.make_near(*policy, 0, page + i);
    ASSERT_TRUE(table[1].load().is(PageState::kNear)) << page;
  }
  EXPECT_FALSE(table[0].load().is(PageState::kNear));
}

// Fills near memory of `near` pages, so that the policy evicts from now on.
void fill(Table& table, Policy& policy, PageIndex near) {
  for (PageIndex page = 0; page < near; page++) table.make_near(policy, 0, page, PageWord::kStored);
  for (PageIndex out : take(policy, 1)) table.evict(out);
}

TEST(TwoQueue, WhatIsFetchedOnceLeavesFirst) {
  constexpr PageIndex kNear = 3200, kAll = 12000;
  Table table(kAll);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kTwoQueue, table));
  fill(table, *policy, kNear);
  std::set<PageIndex> old;
  for (PageIndex page = kNear; page < kAll; page += 20) {
    for (PageIndex i = 0; i < 20; i++) table.make_near(*policy, i % 4, page + i, PageWord::kStored);
    for (PageIndex out : take(*policy, 20)) {
      table.evict(out);
      if (out < kNear) old.insert(out);
    }
  }
  EXPECT_LE(old.size(), kNear / 32 + 40);  // so much of near memory is lent to the stream
}

TEST(TwoQueue, AHotPageEntersTheMainQueueAndIsMarked) {
  Table table(4000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kTwoQueue, table));
  fill(table, *policy, 3200);
  table.make_near(*policy, 0, 3500, PageWord::kStored | PageWord::kHot);
  table.make_near(*policy, 0, 3501, PageWord::kStored);
  EXPECT_TRUE(table[3500].load().has(PageWord::kMain));
  EXPECT_FALSE(table[3500].load().has(PageWord::kHot));
  EXPECT_FALSE(table[3501].load().has(PageWord::kMain));
}

// System calls in progress may pin more pages than a batch has.
TEST(TwoQueue, PinnedPagesDoNotHideOthers) {
  constexpr PageIndex kNear = 3200, kPinned = 1000;
  Table table(2 * kNear);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kTwoQueue, table));
  fill(table, *policy, kNear);
  for (PageIndex page = kNear; page < kNear + kPinned; page++) {
    table.make_near(*policy, 0, page, PageWord::kStored);
    table[page].update([](PageWord w) { return PageWord(w.bits() + PageWord::kPinOne); });
  }
  size_t evicted = 0;
  for (int batch = 0; batch < 20; batch++) {
    for (PageIndex page : take(*policy, 128)) {
      if (page >= kNear) policy->insert(0, page);  // as the evictor does
      else table.evict(page), evicted++;
    }
  }
  EXPECT_GT(evicted, 500u);
}

TEST(TwoQueue, ThePageOfAnOwnerIsNotMarked) {
  Table table(4000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kTwoQueue, table));
  table[7].force(PageWord().with_state(PageState::kFetching).with_owner(2));
  policy->insert(0, 7);  // preempted since the page was near, and late
  EXPECT_EQ(table[7].load().owner(), 2u);
}

TEST(TwoQueue, WhatReturnsSoonIsHot) {
  Table table(4000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kTwoQueue, table));
  EXPECT_TRUE(policy->is_hot(0, 0, PageWord(), 0, 3200));
  EXPECT_TRUE(policy->is_hot(0, 0, PageWord(), 3100, 3200));
  EXPECT_FALSE(policy->is_hot(0, 0, PageWord(), 3101, 3200));
}

// If what the main queue pushes out returns, too, only pages that return sooner and sooner are hot.
TEST(TwoQueue, AdmitsLessWhereAdmittingGainsNothing) {
  constexpr PageIndex kNear = 3200;
  Table table(2 * kNear);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kTwoQueue, table));
  fill(table, *policy, kNear);
  constexpr PageWord kFromMain = PageWord().with(PageWord::kMain);
  for (PageIndex page = kNear; page < 2 * kNear; page++) {
    table.make_near(*policy, 0, page, PageWord::kStored | PageWord::kHot);
    for (PageIndex out : take(*policy, 1)) table.evict(out);
    policy->is_hot(0, 0, kFromMain, 100, kNear);
  }
  EXPECT_FALSE(policy->is_hot(0, 0, PageWord(), 1000, kNear));
  EXPECT_TRUE(policy->is_hot(0, 0, PageWord(), 10, kNear));
}

TEST(Priority, HigherPrioritiesAreEvictedFirstExceptForAFewPages) {
  Table table(4000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kPriority, table));
  for (PageIndex page = 0; page < 4000; page++) {
    table.set_priority(page, page % 4);
    table.make_near(*policy, 0, page);
  }
  std::vector<PageIndex> all = drain(*policy, 125);
  ASSERT_EQ(all.size(), 4000u);
  for (size_t i = 0; i < 800; i++) ASSERT_EQ(all[i] % 4, 3u) << i;
  for (size_t i = 1000; i < 1700; i++) ASSERT_GE(all[i] % 4, 2u) << i;
  // Pages without a hint are evicted only when all but a few of the others have been.
  EXPECT_LT(std::count_if(all.begin(), all.begin() + 2500, [](PageIndex page) { return page % 4 == 0; }), 100);
}

TEST(Priority, ObservesALaterHint) {
  Table table(1000);
  std::unique_ptr<Policy> policy(new_policy(PolicyKind::kPriority, table));
  for (PageIndex page = 0; page < 1000; page++) {
    if (page >= 500) table.set_priority(page, 1);
    table.make_near(*policy, 0, page);
  }
  for (PageIndex page = 0; page < 500; page += 5) table.set_priority(page, 3);
  std::vector<PageIndex> all = drain(*policy, 50);
  // While pages of priority 1 are evicted, those of priority 3 are found among those of 0, and all but the last few are
  // evicted.
  auto hinted = [](PageIndex page) { return page < 500 && page % 5 == 0; };
  EXPECT_GT(std::count_if(all.begin(), all.begin() + 600, hinted), 70);
}

TEST(PolicyRanges, FindsTheKindOfEachPage) {
  PolicyRanges ranges(PolicyKind::kFifo);
  std::mt19937 random(1);
  std::vector<PolicyKind> expected(10000, PolicyKind::kFifo);
  std::map<PageIndex, PageIndex> lasts;
  for (int round = 0; round < 3000; round++) {
    PageIndex first = random() % 9900, last = first + random() % 100;
    PolicyKind kind = kKinds[random() % std::size(kKinds)];
    bool fits = ranges.count() < PolicyRanges::kMax && !ranges.overlaps(first, last);
    if (fits) {
      ranges.add(first, last, kind);
      std::fill(expected.begin() + first, expected.begin() + last + 1, kind);
      lasts[first] = last;
    } else {
      auto range = lasts.lower_bound(first);
      if (range == lasts.end()) continue;
      ASSERT_TRUE(ranges.remove(range->first));
      std::fill(expected.begin() + range->first, expected.begin() + range->second + 1, PolicyKind::kFifo);
      lasts.erase(range);
    }
    if (round % 100 != 0) continue;
    for (PageIndex page = 0; page < 10000; page++) ASSERT_EQ(ranges.find(page), expected[page]) << page;
  }
}

class Regions : public testing::Test {
 protected:
  static constexpr PageIndex kPages = 10000;
  Table table_{kPages};
  PolicySet set_{PolicyKind::kPriority, table_};
};

TEST_F(Regions, RefuseInvalidRanges) {
  EXPECT_EQ(set_.add(5, 0, PolicyKind::kLru).code(), EINVAL);
  EXPECT_EQ(set_.add(kPages - 1, 2, PolicyKind::kLru).code(), EINVAL);
  EXPECT_TRUE(set_.add(10, 10, PolicyKind::kLru).ok());
  EXPECT_EQ(set_.add(19, 5, PolicyKind::kFifo).code(), EINVAL);
  EXPECT_EQ(set_.add(0, 11, PolicyKind::kFifo).code(), EINVAL);
  EXPECT_TRUE(set_.add(20, 5, PolicyKind::kFifo).ok());
  for (PageIndex i = 0; i < 62; i++) EXPECT_TRUE(set_.add(100 + i, 1, PolicyKind::kLru).ok());
  EXPECT_EQ(set_.add(200, 1, PolicyKind::kLru).code(), ENOSPC);
  set_.remove(10);
  set_.remove(11);  // names no region
  EXPECT_TRUE(set_.add(5, 10, PolicyKind::kLru).ok());
  EXPECT_STREQ(set_.name(), "priority");
}

TEST_F(Regions, AreEvictedByTheirOwnPolicy) {
  ASSERT_TRUE(set_.add(0, 1000, PolicyKind::kFifo).ok());
  ASSERT_TRUE(set_.add(1000, 1000, PolicyKind::kPriority).ok());
  for (PageIndex page = 0; page < 3000; page++) {
    if (page % 2) table_.set_priority(page, 3);
    table_.make_near(set_, 0, page, page % 1000 < 100 ? PageWord::kHot : 0);
  }
  std::vector<PageIndex> first = take(set_, 300);
  ASSERT_EQ(first.size(), 300u);
  // A third from each: the oldest, hot or not; those of priority 3; those that are not hot.
  for (PageIndex page : first) {
    if (page < 1000) EXPECT_LE(page, 101u);
    else if (page < 2000) EXPECT_EQ(page % 2, 1u);
    else EXPECT_GE(page, 2100u);
  }
  EXPECT_NEAR(static_cast<double>(std::count_if(first.begin(), first.end(), [](PageIndex p) { return p < 1000; })), 100,
              1);
  set_.remove(0);
  set_.remove(1000);
  EXPECT_EQ(set_.queued(), 2700u);
  std::vector<PageIndex> rest = drain(set_);
  EXPECT_EQ(std::set<PageIndex>(rest.begin(), rest.end()).size(), 2700u);
  EXPECT_EQ(rest.size(), 2700u);
}

// The smallest region is not starved by the largest, and does not exceed its share.
TEST_F(Regions, AreEvictedInProportion) {
  ASSERT_TRUE(set_.add(0, 50, PolicyKind::kLru).ok());
  for (PageIndex page = 0; page < kPages; page++) table_.make_near(set_, page % 4, page);
  size_t small = 0;
  for (int batch = 0; batch < 500; batch++) {
    for (PageIndex page : take(set_, 10)) small += page < 50;
  }
  EXPECT_NEAR(static_cast<double>(small), 25, 3);
}

TEST_F(Regions, ChangeWhilePagesAreFetchedAndEvicted) {
  constexpr unsigned kThreads = 2, kEvictors = 2;
  std::atomic<unsigned> running{kThreads};
  auto fault = [&](unsigned thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 40000; i++) {
      PageIndex page = random() % kPages;
      PageWord w = table_[page].load();
      if (!w.is(PageState::kUntouched) || !table_[page].try_change(w, w.with_state(PageState::kFetching))) continue;
      table_.make_near(set_, thread, page);
    }
    running--;
  };
  auto evict = [&](unsigned evictor) {
    PageIndex batch[128];
    while (running > 0) {
      size_t found = set_.select(evictor, batch);
      for (size_t i = 0; i < found; i++) {
        PageWord w = table_[batch[i]].load();
        ASSERT_TRUE(w.is(PageState::kNear));
        table_[batch[i]].update([](PageWord now) { return now.with_state(PageState::kEvicting); });
        table_[batch[i]].update([](PageWord now) { return now.with_state(PageState::kUntouched); });
      }
    }
  };
  auto change = [&] {
    std::mt19937 random(9);
    while (running > 0) {
      PageIndex first = random() % 100 * 100;
      if (!set_.add(first, 1 + random() % 100, kKinds[random() % std::size(kKinds)]).ok()) set_.remove(first);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) threads.emplace_back(fault, t);
  for (unsigned e = 0; e < kEvictors; e++) threads.emplace_back(evict, e);
  threads.emplace_back(change);
  for (auto& t : threads) t.join();
  std::set<PageIndex> near;
  for (PageIndex page = 0; page < kPages; page++) {
    if (table_[page].load().is(PageState::kNear)) near.insert(page);
  }
  std::vector<PageIndex> left = drain(set_);
  EXPECT_EQ(std::set<PageIndex>(left.begin(), left.end()), near);
  EXPECT_EQ(left.size(), near.size());
}

}  // namespace
}  // namespace farside::pager
