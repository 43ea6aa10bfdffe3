// Compares each container with its standard counterpart under random operations, with 4 MiB of near memory. Also tests
// concurrent readers, exceptions and edge cases.
#include <gtest/gtest.h>

#include <deque>
#include <queue>
#include <random>
#include <stack>
#include <thread>
#include <vector>

#include "elements.h"
#include "farside/containers/array.hpp"
#include "farside/containers/far_hash_map.hpp"
#include "farside/containers/hash_map.hpp"
#include "farside/containers/list.hpp"
#include "farside/containers/queue.hpp"
#include "farside/containers/stack.hpp"
#include "farside/containers/vector.hpp"

namespace farside::objects {
namespace {

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
