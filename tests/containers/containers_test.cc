// Compares each container with its standard counterpart under random operations, with 4 MiB of near memory. Also tests
// concurrent readers, exceptions and edge cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <queue>
#include <random>
#include <stack>
#include <thread>
#include <unordered_map>
#include <vector>

#include "farside/containers/array.hpp"
#include "farside/containers/far_hash_map.hpp"
#include "farside/containers/hash_map.hpp"
#include "farside/containers/list.hpp"
#include "farside/containers/queue.hpp"
#include "farside/containers/stack.hpp"
#include "farside/containers/vector.hpp"
#include "objects/test_support.h"

namespace farside::objects {
namespace {

struct Line {
  uint64_t words[8];
  bool operator==(const Line&) const = default;
};
struct Large {
  uint64_t key;
  char text[6000];
};
struct NoDefault {
  explicit NoDefault(int v) : value(v) {}
  int value;
};

static_assert(std::random_access_iterator<vector<int>::iterator>);
static_assert(std::random_access_iterator<array<int, 3>::const_iterator>);
static_assert(std::random_access_iterator<detail::scoped_position<detail::sequence<int, 0>>>);
static_assert(std::bidirectional_iterator<list<int>::iterator>);
static_assert(std::bidirectional_iterator<list<int>::const_iterator>);
static_assert(std::forward_iterator<hash_map<int, int>::iterator>);
static_assert(std::forward_iterator<far_hash_map<int, int>::const_iterator>);
static_assert(std::ranges::random_access_range<const vector<int>>);
static_assert(std::is_nothrow_move_constructible_v<vector<int>> && std::is_nothrow_move_constructible_v<list<int>>);
static_assert(!std::is_copy_constructible_v<vector<int>>);
static_assert(vector<uint64_t>::kElementsPerObject == 510 && vector<Large>::kElementsPerObject == 1);

template <typename T>
T value_of(uint64_t x) {
  if constexpr (std::is_same_v<T, Line>) return Line{{x, ~x, x * 3}};
  else return static_cast<T>(x);
}

template <typename Far, typename Near>
void expect_same(const Far& far, const Near& near) {
  ASSERT_EQ(far.size(), near.size());
  auto n = near.begin();
  size_t i = 0;
  for (auto value : far) ASSERT_TRUE(value == *n++) << i++;
  deref_scope scope;
  n = near.begin();
  for (const auto& value : far.in(scope)) ASSERT_TRUE(value == *n++);
}

// ---- Requests ahead ----

// How many positions of the second half of a walk had not been requested before they were missed.
size_t late(detail::walks& walks, const std::vector<int64_t>& positions, int64_t depth) {
  static int container;
  std::unordered_map<int64_t, bool> requested;
  size_t count = 0;
  for (size_t i = 0; i < positions.size(); i++) {
    if (i >= positions.size() / 2 && !requested[positions[i]]) count++;
    detail::prefetch_range a = walks.missed(&container, positions[i], depth);
    EXPECT_LE(a.count, depth);
    for (; a.count > 0; a.count--, a.first += a.step) requested[a.first] = true;
  }
  return count;
}

TEST(Walks, AreRecognizedInBothDirectionsByStridesAndInterleaved) {
  for (int64_t step : {1, -1, 3, 40, -1000}) {
    detail::walks walks;
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < 200; i++) positions.push_back(500000 + i * step);
    EXPECT_EQ(late(walks, positions, 32), 0u) << step;
  }
  detail::walks walks;
  std::vector<int64_t> two, gaps;
  for (int64_t i = 0; i < 200; i++) two.push_back(i), two.push_back(9000 - i);
  EXPECT_EQ(late(walks, two, 32), 0u);
  for (int64_t i = 0; i < 300; i++) {
    if (i < 10 || i % 7 > 2) gaps.push_back(100000 + i);  // the others were near, and so not missed
  }
  EXPECT_EQ(late(walks, gaps, 32), 0u);
}

TEST(Walks, AreNotSeenInRandomAccesses) {
  detail::walks walks;
  std::mt19937_64 random(15);
  int64_t requested = 0;
  for (int i = 0; i < 10000; i++) requested += walks.missed(&walks, static_cast<int64_t>(random() % 20000), 32).count;
  EXPECT_LT(requested, 100);
}

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

// ---- array ----

TEST(FarArray, HasItsSizeAndZeros) {
  ObjectFixture far(4 * kMiB);
  array<uint64_t, 100000> fixed;
  array<Line, dynamic_size, 1> dynamic(50000);
  EXPECT_EQ(fixed.size(), 100000u);
  EXPECT_EQ(std::ranges::count(fixed, 0u), 100000);
  std::mt19937_64 random(5);
  std::vector<uint64_t> shadow(50000);
  for (int round = 0; round < 200000; round++) {
    size_t i = random() % 50000;
    deref_scope scope;
    ASSERT_EQ(dynamic.get(i, scope).words[2], shadow[i]);
    dynamic.get_mut<true>(i, scope).words[2] = ++shadow[i];
  }
  EXPECT_THROW(dynamic.at(50000), std::out_of_range);
  array<Line, dynamic_size, 1> other(3, Line{{7}});
  other.swap(dynamic);
  EXPECT_EQ(dynamic.size(), 3u);
  EXPECT_EQ(dynamic[2].words[0], 7u);
  EXPECT_EQ(other.load(1).words[2], shadow[1]);
  array<int, 0> none;
  EXPECT_TRUE(none.empty());
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

// ---- queue and stack ----

TEST(FarQueue, AndStackDoWhatTheirsDo) {
  ObjectFixture far(4 * kMiB);
  std::mt19937_64 random(9);
  queue<Line> mine_q;
  std::queue<Line> their_q;
  stack<uint64_t> mine_s;
  std::stack<uint64_t> their_s;
  for (int phase = 0; phase < 12; phase++) {
    unsigned pushes = phase % 2 == 0 ? 6 : 3;  // of ten
    for (int round = 0; round < 60000; round++) {
      uint64_t x = random();
      if (random() % 10 < pushes || their_q.empty() || their_s.empty()) {
        mine_q.push(value_of<Line>(x)), their_q.push(value_of<Line>(x));
        mine_s.push(x), their_s.push(x);
      } else {
        ASSERT_TRUE(mine_q.front() == their_q.front());
        ASSERT_EQ(mine_s.top(), their_s.top());
        mine_q.pop(), their_q.pop(), mine_s.pop(), their_s.pop();
      }
      ASSERT_EQ(mine_q.size(), their_q.size());
    }
    if (!their_q.empty()) {
      ASSERT_TRUE(mine_q.back() == their_q.back());
    }
  }
  queue<Line> moved(std::move(mine_q));
  EXPECT_TRUE(mine_q.empty());
  for (; !their_q.empty(); their_q.pop(), moved.pop()) ASSERT_TRUE(moved.front() == their_q.front());
  mine_q.push(Line{});
  EXPECT_EQ(mine_q.size(), 1u);
}

// ---- hash maps ----

struct SameTag {  // a hash with which all keys collide
  size_t operator()(uint64_t) const { return 3; }
};

// The same random operation on both.
template <typename Map, typename V>
void change_both(Map& mine, std::unordered_map<uint64_t, V>& theirs, std::mt19937_64& random, uint64_t keys) {
  uint64_t key = random() % keys;
  V value = value_of<V>(random());
  switch (random() % 8) {
    case 0 ... 1: {
      auto [at, added] = mine.try_emplace(key, value);
      ASSERT_EQ(added, theirs.try_emplace(key, value).second);
      ASSERT_EQ(at->first, key);
      break;
    }
    case 2:
      ASSERT_EQ(mine.insert_or_assign(key, value).second, theirs.insert_or_assign(key, value).second);
      break;
    case 3:
      ASSERT_EQ(mine.erase(key), theirs.erase(key));
      break;
    case 4: {
      deref_scope scope;
      V* found = mine.get_mut(key, scope);
      auto other = theirs.find(key);
      ASSERT_EQ(found != nullptr, other != theirs.end());
      if (found) *found = other->second = value;
      break;
    }
    case 5: {
      auto found = mine.find(key);
      ASSERT_EQ(found != mine.end(), theirs.contains(key));
      if (found != mine.end()) {
        ASSERT_TRUE(found->second == theirs.at(key));
      }
      break;
    }
    default: {
      auto other = theirs.find(key);
      ASSERT_TRUE(mine.load(key) == (other == theirs.end() ? std::optional<V>() : std::optional<V>(other->second)));
    }
  }
}

template <typename Map, typename V>
void expect_entries(const Map& map, const std::unordered_map<uint64_t, V>& theirs) {
  size_t wrong = 0, seen = 0, copied = 0, in_place = 0;
  auto check = [&](const uint64_t& key, const V& value) { wrong += !(theirs.at(key) == value); };
  map.for_each([&](const uint64_t& key, const V& value) { check(key, value), seen++; });
  for (auto [key, value] : map) check(key, value), copied++;
  deref_scope scope;
  for (auto& entry : map.in(scope)) check(entry.first, entry.second), in_place++;
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(seen == theirs.size() && copied == seen && in_place == seen);
}

template <typename Map>
void compare_maps(uint64_t seed, size_t rounds, uint64_t keys) {
  ObjectFixture far(4 * kMiB);
  std::mt19937_64 random(seed);
  using V = typename Map::mapped_type;
  Map mine;
  std::unordered_map<uint64_t, V> theirs;
  for (size_t round = 0; round < rounds; round++) {
    ASSERT_NO_FATAL_FAILURE(change_both(mine, theirs, random, keys));
    ASSERT_EQ(mine.size(), theirs.size());
  }
  expect_entries(mine, theirs);
  EXPECT_THROW(mine.at(keys), std::out_of_range);
  Map moved(std::move(mine));
  EXPECT_TRUE(mine.empty() && mine.begin() == mine.end() && !mine.contains(1));
  mine.try_emplace(1, value_of<V>(1));
  mine = std::move(moved);
  expect_entries(mine, theirs);
  for (auto& [key, value] : theirs) ASSERT_EQ(mine.erase(key), 1u);
  EXPECT_TRUE(mine.empty());
  mine.clear();
  EXPECT_EQ(far.stats().objects, 0u);
}

TEST(FarHashMap, DoesWhatAnUnorderedMapDoes) { compare_maps<hash_map<uint64_t, Line>>(10, 300000, 100000); }
TEST(FarHashMap, WithOneTagForAllDoesWhatAnUnorderedMapDoes) {
  compare_maps<hash_map<uint64_t, uint64_t, SameTag>>(11, 20000, 300);
}
TEST(AllFarHashMap, DoesWhatAnUnorderedMapDoes) { compare_maps<far_hash_map<uint64_t, uint64_t>>(12, 600000, 600000); }
TEST(AllFarHashMap, OfLinesDoesWhatAnUnorderedMapDoes) {
  compare_maps<far_hash_map<uint64_t, Line>>(13, 300000, 100000);
}
TEST(AllFarHashMap, WithOneHashForAllDoesWhatAnUnorderedMapDoes) {
  compare_maps<far_hash_map<uint64_t, uint64_t, SameTag, std::equal_to<uint64_t>, 7>>(14, 20000, 300);
}

TEST(FarHashMap, ReferencesOutliveGrowth) {
  ObjectFixture far(4 * kMiB);
  hash_map<int, uint64_t> map{{1, 10}, {2, 20}};
  deref_scope scope;
  const uint64_t& ten = map.at(1, scope);
  for (int i = 3; i < 100000; i++) map.emplace(i, i);
  EXPECT_EQ(ten, 10u);
  EXPECT_EQ(&map.at(1, scope), &ten);
  for (auto i = map.begin(); i != map.end();) i = i->first % 2 == 0 ? map.erase(i) : ++i;
  EXPECT_EQ(map.size(), 49999u + 1u);
  map.prefetch(77);
  for (auto& entry : map.in_mut(scope)) entry.second++;
  EXPECT_EQ(map.at(77), 78u);
}

// ---- Threads ----

TEST(Containers, AreReadByManyThreads) {
  ObjectFixture far(4 * kMiB, false);
  constexpr uint64_t kCount = 60000;
  vector<Line, 1> lines;
  vector<uint64_t> numbers;
  list<uint64_t> chain;
  hash_map<uint64_t, Line> map;
  far_hash_map<uint64_t, uint64_t> all_far;
  for (uint64_t i = 0; i < kCount; i++) {
    lines.push_back(value_of<Line>(i)), numbers.push_back(i), chain.push_back(i);
    map.try_emplace(i, value_of<Line>(i)), all_far.try_emplace(i, i);
  }
  auto read = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int round = 0; round < 30000; round++) {
      uint64_t i = random() % kCount;
      ASSERT_EQ(lines[i].words[1], ~i);
      ASSERT_EQ(numbers[i], i);
      ASSERT_EQ(map.at(i).words[0], i);
      ASSERT_EQ(all_far.at(i), i);
      ASSERT_FALSE(map.contains(i + kCount));
    }
    uint64_t next = 0;
    chain.for_each([&](uint64_t x) { ASSERT_EQ(x, next++); });
    numbers.for_each<true>([&](uint64_t x) { ASSERT_EQ(x, kCount - next--); });
    for (auto i = chain.rbegin(); i != chain.rend(); ++i) ASSERT_EQ(*i, kCount - ++next);
    forget_thread();
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++) threads.emplace_back(read, t);
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace farside::objects
