// Eviction handlers on a pager in this process: what they see, what they may do, and that no object leaves without a
// call.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "objects/test_objects.h"

namespace farside::objects {
namespace {

constexpr size_t kCapacity = 128 * kMiB;
constexpr size_t kMany = kSanitized ? 160000 : 300000;  // 64 bytes and a header each, with 8 MiB near

// The words of the tests' objects.
enum Word { kNumber, kVersion, kSeen };

class Lines {
 public:
  explicit Lines(size_t count) : in_({kCapacity, nullptr, 0}), lines_(count), versions_(count) {}
  const structure& in() const { return in_; }
  unique_ptr<Line>& operator[](size_t i) { return lines_[i]; }
  size_t size() const { return lines_.size(); }
  void make(size_t i) { lines_[i] = make_unique_in<Line>(in_, Line{{i, 0, 0}}); }
  void make_all() {
    for (size_t i = 0; i < size(); i++) make(i);
  }
  void renew(size_t i) {
    lines_[i] = nullptr;
    versions_[i] = 0;
    make(i);
  }
  // By one thread at a time for each line.
  void write(size_t i) {
    deref_scope scope;
    Line* line = lines_[i].deref_mut(scope);
    ASSERT_EQ(line->words[kNumber], i);
    ASSERT_EQ(line->words[kVersion], versions_[i]);
    line->words[kVersion] = ++versions_[i];
  }
  void check(size_t i) {
    deref_scope scope;
    const Line* line = lines_[i].deref(scope);
    ASSERT_EQ(line->words[kNumber], i);
    ASSERT_EQ(line->words[kVersion], versions_[i]);
  }
  uint64_t address_of(size_t i) { return load_owner(detail::access::word(lines_[i])).address(); }
  // The server has no object with content that the handler has not seen. Returns how many objects are far.
  size_t check_far(ObjectFixture& on) {
    size_t far = 0, wrong = 0;
    for (size_t i = 0; i < size(); i++) {
      uint64_t address = address_of(i);
      if (!on.pager().table().word(address).is(pager::PageState::kFar)) continue;
      far++;
      const auto* stored = reinterpret_cast<const Line*>(on.in_store(address));
      wrong += stored->words[kVersion] != versions_[i] || stored->words[kSeen] != versions_[i] + 1;
    }
    EXPECT_EQ(wrong, 0u) << "of " << far;
    return far;
  }

 private:
  structure in_;
  std::vector<unique_ptr<Line>> lines_;
  std::vector<uint64_t> versions_;
};

void see(Line& line) { line.words[kSeen] = line.words[kVersion] + 1; }

TEST(EvictionHandlers, SeeWhatLeavesAndWriteToIt) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kMany);
  std::atomic<uint64_t> calls{0};
  auto handler = [&](Line& line, uint64_t* owner) {
    EXPECT_EQ(owner, detail::access::word(lines[line.words[kNumber]]));
    see(line);
    calls++;
    return true;
  };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  std::mt19937_64 random(1);
  for (size_t round = 0; round < kMany / 4; round++) lines.write(random() % lines.size());
  EXPECT_GT(calls, lines.size() / 4);
  EXPECT_GT(lines.check_far(far), lines.size() / 4);
  for (size_t i = 0; i < lines.size(); i++) lines.check(i);
  EXPECT_EQ(far.stats().objects, lines.size());
  // The limit holds.
  pager::Stats stats = far.pager().stats();
  EXPECT_LE(stats.near_peak_pages, stats.limit_pages + stats.limit_pages / 16);
}

// A cache: what leaves is dropped, so nothing is written to the server.
TEST(EvictionHandlers, DropObjects) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kMany);
  auto handler = [&](Line& line, uint64_t*) {
    size_t i = line.words[kNumber];
    {
      deref_scope scope;
      EXPECT_EQ(lines[i].deref(scope), &line);  // its own object, as by any other code
    }
    lines[i] = nullptr;
    return true;
  };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  lines.in().remove_handler();
  uint64_t left = far.stats().objects;
  EXPECT_GT(left, 20000u);
  EXPECT_LT(left, 8 * kMiB / sizeof(Line));
  EXPECT_TRUE(lines[lines.size() - 1]);  // the last ones are there
  EXPECT_LT(far.pager().stats().get(pager::Counter::kBytesWritten), kMiB);
  for (size_t i = 0; i < lines.size(); i++) {
    if (lines[i]) lines.check(i);
  }
}

// From one table of owners to another, as a structure does that has lists of what is near and of what is far.
TEST(EvictionHandlers, MoveOwners) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kMany);
  std::vector<unique_ptr<Line>> left(kMany);
  auto handler = [&](Line& line, uint64_t*) {
    size_t i = line.words[kNumber];
    if (left[i]) return true;
    left[i] = std::move(lines[i]);
    deref_scope scope;
    EXPECT_EQ(left[i].deref(scope), &line);
    return true;
  };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  lines.in().remove_handler();
  size_t moved = 0;
  for (size_t i = 0; i < kMany; i++) {
    moved += !lines[i];
    ASSERT_EQ((lines[i] ? lines[i] : left[i]).load().words[kNumber], i);
  }
  EXPECT_GT(moved, kMany / 4);
  EXPECT_EQ(far.stats().objects, kMany);
}

TEST(EvictionHandlers, DelayObjects) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kMany);
  std::atomic<bool> delays{true};
  auto handler = [&](Line& line, uint64_t*) {
    if (delays && line.words[kNumber] < 20000) return false;
    see(line);
    return true;
  };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  lines.check_far(far);
  auto is_far = [&](size_t i) { return far.pager().table().word(lines.address_of(i)).is(pager::PageState::kFar); };
  size_t left = 0;
  for (size_t i = 0; i < 20000; i++) left += is_far(i);
  EXPECT_EQ(left, 0u);
  delays = false;
  std::mt19937_64 random(1);
  for (size_t round = 0; round < kMany / 2; round++) lines.check(20000 + random() % (kMany - 20000));
  for (size_t i = 0; i < 20000; i++) left += is_far(i);
  EXPECT_GT(left, 10000u);
  lines.check_far(far);
}

// While everything is delayed, threads get frames beyond the limit, and nothing leaves.
TEST(EvictionHandlers, EndNothingByDelayingAll) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kSanitized ? 112000 : 125000);
  auto handler = [](Line&, uint64_t*) { return false; };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  EXPECT_EQ(lines.check_far(far), 0u);
  for (size_t i = 0; i < lines.size(); i++) lines.check(i);
}

// They use other far objects and create some.
TEST(EvictionHandlers, UseOtherFarObjects) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kMany);
  std::vector<unique_ptr<Line>> copies(lines.size());
  auto handler = [&](Line& line, uint64_t*) {
    see(line);
    unique_ptr<Line>& copy = copies[line.words[kNumber]];
    if (!copy) copy = make_unique<Line>(line);
    else copy.store(line);
    return true;
  };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; round++) lines.write(random() % lines.size());
  EXPECT_GT(lines.check_far(far), 0u);
  lines.in().remove_handler();
  size_t copied = 0;
  for (size_t i = 0; i < lines.size(); i++) {
    if (!copies[i]) continue;
    copied++;
    ASSERT_EQ(copies[i].load().words[kNumber], i);
  }
  EXPECT_GT(copied, lines.size() / 8);
}

// Threads that read, write, destroy and create, beside a handler that writes and delays.
TEST(EvictionHandlers, LoseNothingBesideThreads) {
  ObjectFixture far(6 * kMiB);
  constexpr unsigned kThreads = 3;
  Lines lines(kMany);
  std::atomic<uint64_t> calls{0};
  auto handler = [&](Line& line, uint64_t*) {
    see(line);
    return ++calls % 64 != 0;
  };
  lines.in().on_evict<Line>(handler);
  lines.make_all();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int round = 0; round < (kSanitized ? 8000 : 60000); round++) {
        size_t i = random() % (lines.size() / kThreads) * kThreads + t;
        if (round % 16 == 1) lines.renew(i);
        else if (round % 2 == 0) lines.write(i);
        else lines.check(i);
      }
      forget_thread();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(calls, lines.size() / 8);
  EXPECT_GT(lines.check_far(far), lines.size() / 8);
  for (size_t i = 0; i < lines.size(); i++) lines.check(i);
}

TEST(EvictionHandlers, AreRemovedWhenNoneRuns) {
  ObjectFixture far(8 * kMiB);
  Lines lines(kMany);
  for (int round = 0; round < 10; round++) {
    auto running = std::make_unique<std::atomic<bool>>(false);
    auto handler = [&](Line&, uint64_t*) {
      running->store(true);
      os::nanosleep_ns(10000);
      running->store(false);
      return true;
    };
    lines.in().on_evict<Line>(handler);
    for (size_t i = 0; i < lines.size() / 4; i++) lines.make(i);
    lines.in().remove_handler();
    EXPECT_FALSE(running->load());
  }
  for (size_t i = 0; i < lines.size(); i++) lines.make(i);
  for (size_t i = 0; i < lines.size(); i++) lines.check(i);
}

TEST(EvictionHandlers, AreRefusedWhereTheyCannotBeCalled) {
  ObjectFixture far(8 * kMiB);
  auto handler = [](uint64_t*, void*, size_t, void*) { return FARSIDE_EVICTION_PERMITTED; };
  EXPECT_EQ(farside_structure_on_evict(0, handler, nullptr), -EINVAL);
  EXPECT_EQ(farside_structure_on_evict(60, handler, nullptr), -EINVAL);
  structure tracked({kMiB, nullptr, 1}), used({kMiB, nullptr, 0}), in({kMiB, nullptr, 0});
  EXPECT_EQ(farside_structure_on_evict(tracked.id(), handler, nullptr), -EINVAL);
  auto object = make_unique_in<Small>(used);
  EXPECT_EQ(farside_structure_on_evict(used.id(), handler, nullptr), -EBUSY);
  object = nullptr;
  EXPECT_EQ(farside_structure_on_evict(used.id(), handler, nullptr), -EBUSY);  // its pages are kept for others
  EXPECT_EQ(farside_structure_on_evict(in.id(), handler, nullptr), 0);
  auto outer = make_unique<Small>();
  deref_scope scope;
  void* place;
  static farside_object_type type = {8, 8, nullptr, 0};
  EXPECT_EQ(farside_object_new(&outer.deref_mut(scope)->key, &type, FARSIDE_OBJECT_IN(in.id()), &place), -EINVAL);
}

}  // namespace
}  // namespace farside::objects
