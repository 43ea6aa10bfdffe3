// Objects that are moved while others refer to them: pointers inside objects, calls on memory servers, threads that
// stop moves.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "objects/test_objects.h"

namespace farside::objects {
namespace {

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
  pager::CallRange range = {memory[0].data(), memory[0].size(), false};
  EXPECT_EQ(far.pager().server_calls().begin({&range, 1}), 0);
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
  far.pager().server_calls().end({&range, 1});
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

}  // namespace
}  // namespace farside::objects
