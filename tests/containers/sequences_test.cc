// far::vector and far::list against std::vector and std::list.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <vector>

#include "elements.h"
#include "farside/containers/list.hpp"
#include "farside/containers/vector.hpp"

namespace farside::objects {
namespace {

// ---- vector ----

// The same random operation on both.
template <typename Vector, typename T>
void change_both(Vector& mine, std::vector<T>& theirs, std::mt19937_64& random, size_t most) {
  T value = value_of<T>(random());
  size_t size = theirs.size(), at = random() % (size + 1);
  auto mine_at = mine.begin() + static_cast<std::ptrdiff_t>(at);
  auto theirs_at = theirs.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random() % 16) {
    case 0 ... 3:
      mine.push_back(value), theirs.push_back(value);
      break;
    case 4:
      if (size > 0) mine.pop_back(), theirs.pop_back();
      break;
    case 5:
      ASSERT_EQ(mine.insert(mine_at, value).index(), at);
      theirs.insert(theirs_at, value);
      break;
    case 6: {
      size_t count = random() % 700;
      if (size + count > most) break;
      mine.insert(mine_at, count, value), theirs.insert(theirs_at, count, value);
      break;
    }
    case 7: {
      auto count = static_cast<std::ptrdiff_t>(random() % 1500 % (size - at + 1));
      ASSERT_EQ(mine.erase(mine_at, mine_at + count).index(), at);
      theirs.erase(theirs_at, theirs_at + count);
      break;
    }
    case 8:
      if (at < size) mine.erase(mine_at), theirs.erase(theirs_at);
      break;
    case 9: {
      size_t to = random() % 64 == 0 ? at : std::min(most, size + random() % (most / 50));
      mine.resize(to, value), theirs.resize(to, value);
      break;
    }
    case 10: {
      std::vector<T> some(random() % 1000, value);
      if (size + some.size() > most) break;
      mine.append(some), theirs.insert(theirs.end(), some.begin(), some.end());
      break;
    }
    case 11:
      if (random() % 64 == 0) mine.shrink_to_fit();
      break;
    default:
      if (at < size) {
        ASSERT_TRUE(mine[at] == theirs[at]);
        mine.store(at, value), theirs[at] = value;
      }
  }
}

template <typename T, size_t perObject>
void compare_vectors(uint64_t seed, size_t rounds, size_t most) {
  ObjectFixture far(4 * kMiB);
  std::mt19937_64 random(seed);
  vector<T, perObject> mine(most / 2, value_of<T>(1));
  std::vector<T> theirs(most / 2, value_of<T>(1));
  for (size_t round = 0; round < rounds; round++) {
    ASSERT_NO_FATAL_FAILURE(change_both(mine, theirs, random, most));
    if (round % (rounds / 8) == 0) expect_same(mine, theirs);
  }
  expect_same(mine, theirs);
  vector<T, perObject> moved(std::move(mine));
  EXPECT_EQ(mine.size(), 0u);
  mine = std::move(moved);
  expect_same(mine, theirs);
  EXPECT_TRUE(std::equal(mine.rbegin(), mine.rend(), theirs.rbegin()));
  mine.clear();
  EXPECT_EQ(far.stats().objects, 0u);
}

TEST(FarVector, DoesWhatAVectorDoes) { compare_vectors<uint64_t, 0>(1, 2000, 900000); }
TEST(FarVector, OfLinesByThemselvesDoesWhatAVectorDoes) { compare_vectors<Line, 1>(2, 400, 100000); }
TEST(FarVector, OfBytesDoesWhatAVectorDoes) { compare_vectors<uint8_t, 100>(3, 1000, 1000000); }

TEST(FarVector, ScansWhatIsFarInBothDirectionsAndByStrides) {
  ObjectFixture far(4 * kMiB);
  constexpr size_t kCount = 3'000'000;  // 24 MB
  vector<uint64_t> v;
  for (size_t i = 0; i < kCount; i++) v.push_back(i);
  uint64_t sum = 0;
  v.for_each([&](uint64_t x) { sum += x; });
  EXPECT_EQ(sum, kCount * (kCount - 1) / 2);
  v.for_each_mut<true>([](uint64_t& x) { x *= 2; });
  for (size_t i = 0; i < kCount; i++) ASSERT_EQ(v[i], i * 2);
  for (size_t i = kCount; i-- > 0;) ASSERT_EQ(v[i], i * 2);
  for (size_t i = 0; i < kCount; i += 1300) ASSERT_EQ(v[i], i * 2);
  EXPECT_GT(far.pager().stats().get(pager::Counter::kHints), 0u);
  size_t seen = 0;
  v.for_each_chunk(5, kCount - 7, [&](std::span<const uint64_t> run) {
    ASSERT_EQ(run.front(), (5 + seen) * 2);
    seen += run.size();
  });
  EXPECT_EQ(seen, kCount - 12);
}

TEST(FarVector, SortsInAScope) {
  ObjectFixture far(4 * kMiB);
  std::mt19937_64 random(4);
  vector<uint64_t> v;
  for (size_t i = 0; i < 200000; i++) v.push_back(random());
  deref_scope scope;
  std::ranges::sort(v.in_mut(scope));
  EXPECT_TRUE(std::ranges::is_sorted(v));
  EXPECT_TRUE(std::binary_search(v.in(scope).begin(), v.in(scope).end(), v[777]));
}

TEST(FarVector, EdgesAndExceptions) {
  ObjectFixture far(4 * kMiB);
  vector<int> v;
  EXPECT_TRUE(v.empty());
  EXPECT_TRUE(v.begin() == v.end());
  EXPECT_THROW(v.at(0), std::out_of_range);
  v.for_each([](int) { FAIL(); });
  v = vector<int>{1, 2, 3};
  EXPECT_EQ(v.at(2), 3);
  EXPECT_EQ(v.front() + v.back(), 4);
  {
    deref_scope scope;
    EXPECT_THROW(v.at_mut(3, scope), std::out_of_range);
    v.at_mut(1, scope) = 7;
    v.push_back(v.get(1, scope));  // an element of the same vector
    v.begin().get_mut(scope) = 9;
  }
  EXPECT_TRUE(std::ranges::equal(v, std::vector<int>{9, 7, 3, 7}));
  EXPECT_EQ(erase_if(v, [](int x) { return x == 7; }), 2u);
  EXPECT_TRUE(v == (vector<int>{9, 3}));
  vector<NoDefault> n;
  n.emplace_back(5);
  EXPECT_EQ(n.begin()->value, 5);
  EXPECT_EQ(n[0].value, 5);
  vector<Large> large;
  for (uint64_t i = 0; i < 2000; i++) large.push_back({i, {}});
  for (uint64_t i = 0; i < 2000; i++) ASSERT_EQ(large[i].key, i);
  EXPECT_THROW(v.for_each([](int) { throw 1; }), int);
  EXPECT_EQ(farside_scopes_here->depth, 0u);
}

TEST(FarVector, AFullFarSideChangesNothing) {
  ObjectFixture far(4 * kMiB, true, 192 * kMiB);
  vector<uint64_t> v;
  for (uint64_t i = 0; i < 1000; i++) v.push_back(i);
  EXPECT_THROW(v.resize(30'000'000), std::bad_alloc);  // more than all addresses
  EXPECT_EQ(v.size(), 1000u);
  EXPECT_THROW(for (;;) v.push_back(v.size()), std::bad_alloc);
  for (uint64_t i = 0; i < v.size(); i += 1000) ASSERT_EQ(v[i], i);
}

// ---- list ----

// A list, its standard counterpart, and an iterator of each at the same element.
template <typename List, typename T>
struct ListPair {
  List mine;
  std::list<T> theirs;
  typename List::iterator mine_at = mine.begin();
  typename std::list<T>::iterator theirs_at = theirs.begin();
};

// Moves both iterators by the same random steps.
template <typename List, typename T>
void walk_both(ListPair<List, T>& lists, std::mt19937_64& random) {
  auto& [mine, theirs, mine_at, theirs_at] = lists;
  for (size_t steps = random() % 20; steps > 0; steps--) {
    if (random() % 3 != 0 && theirs_at != theirs.end()) ++mine_at, ++theirs_at;
    else if (theirs_at != theirs.begin()) --mine_at, --theirs_at;
  }
}

// The same random operation on both.
template <typename List, typename T>
void change_both(ListPair<List, T>& lists, std::mt19937_64& random, size_t most) {
  auto& [mine, theirs, mine_at, theirs_at] = lists;
  T value = value_of<T>(random());
  switch (random() % 12) {
    case 0 ... 2:
      mine_at = mine.insert(mine_at, value), theirs_at = theirs.insert(theirs_at, value);
      break;
    case 3 ... 5:
      if (theirs_at != theirs.end()) mine_at = mine.erase(mine_at), theirs_at = theirs.erase(theirs_at);
      break;
    case 6:
      mine.push_back(value), theirs.push_back(value);
      break;
    case 7:
      mine.push_front(value), theirs.push_front(value);
      break;
    case 8:
      if (theirs.empty()) break;
      if (theirs_at == theirs.begin()) ++theirs_at, ++mine_at;
      mine.pop_front(), theirs.pop_front();
      break;
    case 9: {
      List some;
      std::list<T> others;
      for (size_t n = random() % 400; n > 0 && theirs.size() < most; n--)
        some.push_back(value), others.push_back(value);
      mine.splice(mine_at, some), theirs.splice(theirs_at, others);
      ASSERT_TRUE(some.empty());
      mine_at = mine.begin(), theirs_at = theirs.begin();
      break;
    }
    case 10: {
      auto mine_end = mine_at;
      auto theirs_end = theirs_at;
      for (size_t n = random() % 300; n > 0 && theirs_end != theirs.end(); n--) ++mine_end, ++theirs_end;
      mine_at = mine.erase(mine_at, mine_end), theirs_at = theirs.erase(theirs_at, theirs_end);
      break;
    }
    default:
      if (theirs_at != theirs.end()) {
        ASSERT_TRUE(*mine_at == *theirs_at);
        deref_scope scope;
        mine_at.get_mut(scope) = value, *theirs_at = value;
      }
  }
}

template <typename T, size_t perObject>
void compare_lists(uint64_t seed, size_t rounds, size_t most) {
  ObjectFixture far(4 * kMiB);
  std::mt19937_64 random(seed);
  ListPair<list<T, perObject>, T> lists;
  auto& [mine, theirs, mine_at, theirs_at] = lists;
  for (size_t round = 0; round < rounds; round++) {
    if (round % 50 == 0) mine_at = mine.begin(), theirs_at = theirs.begin();  // also after pushes that merged chunks
    walk_both(lists, random);
    ASSERT_NO_FATAL_FAILURE(change_both(lists, random, most));
    ASSERT_EQ(mine.size(), theirs.size());
    if (round % (rounds / 8) == 0) expect_same(mine, theirs);
  }
  for (size_t index : {size_t{0}, mine.size() / 2, mine.size() - 1})
    EXPECT_TRUE(*mine.nth(index) == *std::next(theirs.begin(), static_cast<std::ptrdiff_t>(index)));
  EXPECT_TRUE(mine.nth(mine.size()) == mine.end());
  auto third = [](const T& value) { return reinterpret_cast<const uint8_t&>(value) % 3 == 0; };
  EXPECT_EQ(mine.remove_if(third), theirs.remove_if(third));
  expect_same(mine, theirs);
  EXPECT_TRUE(std::equal(mine.rbegin(), mine.rend(), theirs.rbegin()));
  list<T, perObject> moved(std::move(mine));
  EXPECT_TRUE(mine.empty() && mine.begin() == mine.end());
  mine.push_back(value_of<T>(1));
  mine.swap(moved);
  EXPECT_EQ(moved.size(), 1u);
  expect_same(mine, theirs);
  mine.clear(), moved.clear();
  EXPECT_EQ(far.stats().objects, 0u);
}

TEST(FarList, DoesWhatAListDoes) { compare_lists<uint64_t, 0>(6, 20000, 400000); }
TEST(FarList, OfSmallChunksDoesWhatAListDoes) { compare_lists<uint32_t, 5>(7, 20000, 20000); }
TEST(FarList, OfSingleElementsDoesWhatAListDoes) { compare_lists<Line, 1>(8, 10000, 50000); }

TEST(FarList, IsWalkedInBothDirectionsWhileFar) {
  ObjectFixture far(4 * kMiB);
  list<uint64_t> mine;
  constexpr uint64_t kCount = 2'000'000;
  for (uint64_t i = 0; i < kCount / 2; i++) mine.push_back(i + kCount / 2), mine.push_front(kCount / 2 - 1 - i);
  uint64_t next = 0;
  mine.for_each([&](uint64_t x) { ASSERT_EQ(x, next++); });
  for (auto i = mine.end(); i != mine.begin();) ASSERT_EQ(*--i, --next);
  EXPECT_EQ(next, 0u);
  EXPECT_GT(far.pager().stats().get(pager::Counter::kHints), 0u);
}

}  // namespace
}  // namespace farside::objects
