// Cases of the program `offload`: maps, algorithms and containers on a server, compared with those of the standard
// library.
#include <farside/containers/offload_algorithms.hpp>
#include <farside/containers/remote_hash_map.hpp>
#include <farside/offload_algorithms.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "offload_cases.h"

namespace {

// All results are compared with those of the standard library.
struct Wide {  // so that there are many pages
  uint64_t value, rest[14];
  bool operator==(uint64_t other) const { return value == other; }
};

// Compares count_if, find_if and reduce with the same on a plain vector.
template <typename C>
void compare(const char* name, const C& container, const std::vector<uint64_t>& plain, offload::mode mode) {
  bool (*is_above)(const uint64_t&, const uint64_t&) = [](const uint64_t& v, const uint64_t& limit) {
    return v > limit;
  };
  uint64_t (*add)(uint64_t, const uint64_t&) = [](uint64_t all, const uint64_t& v) { return all * 3 + v; };
  auto above = [](uint64_t limit) { return [limit](uint64_t v) { return v > limit; }; };
  auto count = offload::count_if(container, is_above, 900, mode);
  auto first = offload::find_if(container, is_above, 9998, mode);
  auto none = offload::find_if(container, is_above, 10000, mode);
  auto all = offload::reduce(container, uint64_t{1}, add, mode);
  auto found = std::find_if(plain.begin(), plain.end(), above(9998)) - plain.begin();
  printf("%s %d", name,
         check(count, "count") && *count == size_t(std::count_if(plain.begin(), plain.end(), above(900))));
  printf("%d", check(first, "first") && *first == static_cast<size_t>(found));
  printf("%d", check(none, "none") && *none == plain.size());
  static uint64_t* copies = far_words();
  auto copied = offload::copy(container, copies + 3, mode);
  printf("%d", check(copied, "copy") && std::equal(plain.begin(), plain.end(), copies + 3));
  printf("%d\n", check(all, "reduce") && *all == std::accumulate(plain.begin(), plain.end(), uint64_t{1}, add));
}

// Compares gather with the same on a plain vector.
template <typename C>
void compare_gather(const C& from, const std::vector<uint64_t>& plain, size_t count, std::mt19937_64& random,
                    offload::mode mode) {
  std::vector<size_t> indexes(count);
  for (size_t& index : indexes) index = random() % plain.size();
  auto values = offload::gather(from, indexes, mode);
  auto is_right = [&, i = size_t{0}](uint64_t value) mutable { return value == plain[indexes[i++]]; };
  printf("%d",
         check(values, "gather") && values->size() == count && std::all_of(values->begin(), values->end(), is_right));
}

// Sorts it, and compares it with a plain vector that is sorted.
template <typename C>
void compare_sort(C& container, const std::vector<uint64_t>& plain, offload::mode how, offload::mode mode) {
  auto sorted = offload::sort(container, how);
  bool on_server = how == offload::mode::server;
  printf("%d", check(sorted, "sort") && sorted.on_server() == on_server && container.size() == plain.size());
  compare(" sorted", container, plain, mode);
}

}  // namespace

namespace cases {

void map() {
  farside::remote_hash_map<uint64_t, Wide> map;
  std::unordered_map<uint64_t, uint64_t> expected;
  uint64_t random = 1, wrong = 0;
  auto where = offload::available() ? offload::mode::server : offload::mode::local;
  auto add = [](Wide& wide, uint64_t by) { wide.value += by; };
  for (int i = 0; i < 4000; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t key = (random >> 33) % 2000, value = random >> 40;
    auto mode = i % 3 == 0 ? offload::mode::automatic : where;
    switch (random >> 60) {
      case 0:
        wrong += map.erase(key, mode) != (expected.erase(key) == 1);
        break;
      case 1:
      case 2: {
        auto sum = map.update(key, add, value, mode);
        wrong += sum.has_value() != (expected.count(key) == 1);
        if (sum) wrong += !(*sum == (expected[key] += value));
        break;
      }
      case 3:
      case 4:
        wrong += map.insert_or_assign(key, {value, {}}, mode) != expected.insert_or_assign(key, value).second;
        break;
      case 5:
      case 6: {
        auto found = map.find(key, mode);
        wrong += found.has_value() != (expected.count(key) == 1) || (found && !(*found == expected[key]));
        break;
      }
      default:
        wrong += map.insert(key, {value, {}}, mode) != expected.emplace(key, value).second;
    }
  }
  std::vector<uint64_t> keys(2500);
  std::iota(keys.begin(), keys.end(), 0);
  auto values = map.find_all(keys, where);
  for (uint64_t key : keys)
    wrong += values[key].has_value() != (expected.count(key) == 1) || (values[key] && !(*values[key] == expected[key]));
  printf("%lu wrong, %d\n", wrong, map.size() == expected.size());
}

void algorithms() {
  uint64_t* words = far_words();
  constexpr size_t kCount = 100000;
  std::vector<uint64_t> plain(words, words + kCount);
  bool (*is_above)(const uint64_t&, const uint64_t&) = [](const uint64_t& v, const uint64_t& limit) {
    return v > limit;
  };
  uint64_t (*add)(uint64_t, const uint64_t&) = [](uint64_t all, const uint64_t& v) { return all * 3 + v; };
  auto expected = [&](uint64_t limit) {
    return std::count_if(plain.begin(), plain.end(), [=](uint64_t v) { return v > limit; });
  };
  auto count = offload::count_if(words, kCount, is_above, uint64_t{900});
  auto first = offload::find_if(words, kCount, is_above, uint64_t{998});
  auto none = offload::find_if(words, kCount, is_above, uint64_t{1000});
  auto all = offload::reduce(words, kCount, uint64_t{1}, add);
  printf("%d", check(count, "count_if") && *count == static_cast<size_t>(expected(900)));
  printf("%d", check(first, "find_if") && plain[*first] == 999 && *none == kCount);
  printf("%d", check(all, "reduce") && *all == std::accumulate(plain.begin(), plain.end(), uint64_t{1}, add));
  auto picked = offload::gather(words, kCount, {5, 70000, 5});
  printf("%d", check(picked, "gather") && *picked == std::vector<uint64_t>({plain[5], plain[70000], plain[5]}));
  std::vector<uint32_t> places(kCount / 8);
  for (uint32_t& place : places) place = static_cast<uint32_t>(random() % kCount);
  uint64_t* to = far_words();
  auto* far_places = reinterpret_cast<uint32_t*>(to + kCount);
  std::copy(places.begin(), places.end(), far_places);
  auto shuffled = offload::gather(words, kCount, far_places, places.size(), to);
  printf("%d", check(shuffled, "gather into") && std::equal(places.begin(), places.end(), to,
                                                            [&](uint32_t at, uint64_t v) { return v == plain[at]; }));
  auto moved = offload::copy(words, kCount, words + kCount / 2);
  std::copy_backward(plain.begin(), plain.begin() + kCount / 2, plain.end());
  printf("%d", check(moved, "copy") && std::equal(plain.begin(), plain.end(), words));
  auto sorted = offload::sort(words + 7, kCount - 7);
  std::sort(plain.begin() + 7, plain.end());
  printf("%d\n", check(sorted, "sort") && std::equal(plain.begin(), plain.end(), words));
}

// Containers of far objects, while other threads use theirs, so that objects are moved. What was changed before a call
// is near and dirty.
void containers() {
  auto mode = offload::available() ? offload::mode::server : offload::mode::local;
  std::mt19937_64 random(3);
  std::vector<uint64_t> plain(40000);
  for (uint64_t& v : plain) v = random() % 9999;
  plain[30000] = 9999;
  farside::vector<uint64_t> vector(plain.begin(), plain.end());
  farside::array<uint64_t> array(plain.size());
  farside::vector<uint64_t, 1> single(plain.begin(), plain.end());   // more pieces than a call may name
  farside::vector<uint64_t, 9000> huge(plain.begin(), plain.end());  // chunks of several pages
  farside::vector<uint64_t, 100> shuffled;                           // chunks at scattered places
  farside::list<uint64_t> list;
  for (size_t i = 0; i < plain.size(); i++) array.store(i, plain[i]);
  for (uint64_t v : plain) {
    shuffled.push_back(v);
    list.push_back(v);
  }
  std::atomic<bool> ends{false};
  std::thread other([&] {
    farside::vector<uint64_t, 4> own(100000, 7);
    for (std::mt19937_64 order(4); !ends;) {
      for (int i = 0; i < 1000; i++) own.store(order() % own.size(), 7);
      for (int i = 0; i < 1000; i++) shuffled.load(order() % shuffled.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  auto gather = [&](const auto& from, size_t count) { compare_gather(from, plain, count, random, mode); };
  for (int round = 0; round < 3; round++) {
    for (size_t count : {0, 200, 5000}) gather(vector, count), gather(single, count), gather(shuffled, count);
    gather(array, 70000);  // several calls
    printf(" gather\n");
    compare("vector", vector, plain, mode);
    compare("array", array, plain, mode);
    compare("single", single, plain, mode);
    compare("huge", huge, plain, mode);
    compare("shuffled", shuffled, plain, mode);
    compare("list", list, plain, mode);
    compare("local", list, plain, offload::mode::local);
    for (int i = 0; i < 50; i++) {
      size_t at = random() % 30000;
      plain[at] = random() % 9999;
      vector.store(at, plain[at]), array.store(at, plain[at]), single.store(at, plain[at]), huge.store(at, plain[at]);
      shuffled.store(at, plain[at]);
      auto after = list.erase(list.nth(at));
      list.insert(after, plain[at]);
    }
  }
  std::sort(plain.begin(), plain.end());
  auto sort = [&](auto& container, offload::mode how) { compare_sort(container, plain, how, mode); };
  sort(vector, mode), sort(single, mode), sort(shuffled, offload::mode::local), sort(list, mode), sort(array, mode);
  ends = true;
  other.join();
  farside::list<uint64_t> empty;
  compare("empty", empty, {}, offload::mode::automatic);
  printf("%d\n", check(offload::sort(empty, offload::mode::automatic), "sort") && empty.empty());
}

}  // namespace cases
