// The hash maps against std::unordered_map.
#include <gtest/gtest.h>

#include <random>
#include <unordered_map>
#include <vector>

#include "elements.h"
#include "farside/containers/far_hash_map.hpp"
#include "farside/containers/hash_map.hpp"

namespace farside::objects {
namespace {

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

}  // namespace
}  // namespace farside::objects
