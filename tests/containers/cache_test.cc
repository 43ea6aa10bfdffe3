// farside::cache: an entry is there, or has been given to on_drop with its last value.
#include "farside/containers/cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "elements.h"
#include "farside/fiber.hpp"

namespace farside::objects {
namespace {

constexpr size_t kNear = 8 * kMiB;
constexpr farside_structure_options kOptions = {256 * kMiB, nullptr, 0};

// What a program would keep elsewhere: the last values of dropped entries.
class Store {
 public:
  explicit Store(size_t keys) : values_(keys) {}
  void write(uint64_t key, const Line& value) {
    EXPECT_EQ(value, value_of<Line>(value.words[0]));
    values_[key] = value.words[0];
    writes_++;
  }
  uint64_t read(uint64_t key) const { return values_[key]; }
  uint64_t writes() const { return writes_; }

 private:
  std::vector<std::atomic<uint64_t>> values_;
  std::atomic<uint64_t> writes_{0};
};

TEST(Cache, DropsWhatDoesNotFit) {
  ObjectFixture far(kNear);
  constexpr uint64_t kKeys = 400000;  // 48 MiB
  Store store(kKeys);
  cache<uint64_t, Line> lines(kOptions, [&](uint64_t key, const Line& value) { store.write(key, value); });
  for (uint64_t key = 0; key < kKeys; key++) lines.store(key, value_of<Line>(key + 1));
  EXPECT_GT(lines.size(), kNear / sizeof(Line) / 4);
  EXPECT_LT(lines.size(), kNear / sizeof(Line));
  uint64_t dropped = 0;
  for (uint64_t key = 0; key < kKeys; key++) {
    std::optional<Line> line = lines.load(key);
    if (!line) dropped++;
    ASSERT_EQ(line ? line->words[0] : store.read(key), key + 1);
  }
  EXPECT_LE(dropped, store.writes());
  EXPECT_LT(far.pager().stats().get(pager::Counter::kBytesWritten), kMiB);  // nothing goes to the server
}

TEST(Cache, KeepsWhatIsUsed) {
  ObjectFixture far(kNear);
  constexpr uint64_t kKeys = 400000, kHot = 5000;
  cache<uint64_t, Line> lines({kOptions.capacity, "2q", 0});
  uint64_t missed = 0;
  for (uint64_t key = 0; key < kKeys; key++) {
    lines.store(key, value_of<Line>(key));
    uint64_t hot = key * 7919 % kHot;
    if (key < kHot || lines.load(hot)) continue;
    missed++;
    lines.store(hot, value_of<Line>(hot));
  }
  EXPECT_LT(missed, kKeys / 50);
}

TEST(Cache, LosesNothingBesideThreads) {
  ObjectFixture far(kNear);
  constexpr unsigned kThreads = 3;
  constexpr uint64_t kKeys = 150000;
  Store store(kKeys);
  cache<uint64_t, Line> lines(kOptions, [&](uint64_t key, const Line& value) { store.write(key, value); });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<uint64_t> last(kKeys);
      for (int round = 0; round < (kSanitized ? 30000 : 200000); round++) {
        uint64_t key = random() % (kKeys / kThreads) * kThreads + t;
        std::optional<Line> line = lines.load(key);
        uint64_t found = line ? line->words[0] : store.read(key);
        ASSERT_EQ(found, last[key]) << key << (line ? " in the cache" : " in the store");
        auto next = value_of<Line>(last[key] = random() | 1);
        if (!line || !lines.update(key, [&](Line& value) { value = next; })) lines.store(key, next);
        if (round % 64 != 0) continue;
        if (lines.erase(key)) store.write(key, next);
      }
      forget_thread();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(store.writes(), 1000u);
}

TEST(Cache, IsUsedByFibers) {
  ObjectFixture far(kNear);
  cache<uint64_t, Line> lines(kOptions);
  run_fibers(2, [&] {
    std::vector<fiber> all;
    for (uint64_t f = 0; f < 16; f++) {
      all.emplace_back([&, f] {
        std::mt19937_64 random(f);
        for (int round = 0; round < 20000; round++) {
          uint64_t key = random() % 200000;
          if (std::optional<Line> line = lines.load(key)) ASSERT_EQ(*line, value_of<Line>(key));
          else lines.store(key, value_of<Line>(key));
        }
      });
    }
  });
  lines.clear();
  EXPECT_EQ(lines.size(), 0u);
}

}  // namespace
}  // namespace farside::objects
