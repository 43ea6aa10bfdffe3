// Orders the moves of a data structure's objects and the calls on memory servers that follow owners inside them
// (docs/internals/offload.md): while such a call is in progress, no object of the structure is moved, so the server
// finds every object where its owner says. Calls run beside each other, and so do moves.
//
// Neither keeps the other out for ever: a call begins only when no move waits, and a move that finds no call begins at
// once. All changes are of one word, so the side that begins second sees the other.
#pragma once
#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "base/sync.h"
#include "farside/fiber.h"
#include "fiber/wait.h"

namespace farside::objects {

//    63                 40 39                 16 15           0
//   +---------------------+---------------------+--------------+   waiting: moves that wait for the end of calls
//   | waiting             | moving              | calls        |   calls: in progress, or waiting for the end of moves
//   +---------------------+---------------------+--------------+
class GateWord {
 public:
  static constexpr uint64_t kCall = 1, kMove = uint64_t{1} << 16, kWaiting = uint64_t{1} << 40;
  constexpr explicit GateWord(uint64_t bits) : bits_(bits) {}
  constexpr uint64_t calls() const { return bits_ & 0xffff; }
  constexpr uint64_t moving() const { return bits_ >> 16 & 0xffffff; }
  constexpr uint64_t waiting() const { return bits_ >> 40; }

 private:
  uint64_t bits_;
};
static_assert(GateWord(GateWord::kCall).calls() == 1 && GateWord(GateWord::kMove).moving() == 1 &&
              GateWord(GateWord::kWaiting).waiting() == 1);

// Thread-safe. A move that has begun ends without waiting for a call.
class MoveGate {
 public:
  // Counts one move. False: a call is in progress.
  bool try_begin_move() { return begin_move(0); }
  // Waits for the end of calls, for up to max_ns. Calls that have not begun wait meanwhile.
  bool begin_move_within(uint64_t max_ns) {
    if (try_begin_move()) return true;
    if (max_ns == 0) return false;
    word_.fetch_add(GateWord::kWaiting);
    bool begun = wait_until([&] { return begin_move(GateWord::kWaiting); }, max_ns);
    if (!begun) word_.fetch_sub(GateWord::kWaiting);
    changed_.wake_all();
    return begun;
  }
  // By a caller that has begun a move: one more.
  void add_move() { word_.fetch_add(GateWord::kMove); }
  void end_move() {
    uint64_t before = word_.fetch_sub(GateWord::kMove);
    FARSIDE_DCHECK(GateWord(before).moving() > 0);
    if (GateWord(before).calls() > 0) changed_.wake_all();
  }

  // False: moves have not ended for max_ns.
  bool begin_call(uint64_t max_ns) {
    if (!wait_until([&] { return count_call(); }, max_ns)) return false;
    if (wait_until([&] { return GateWord(word_.load()).moving() == 0; }, max_ns)) return true;
    end_call();
    return false;
  }
  void end_call() {
    word_.fetch_sub(GateWord::kCall);
    changed_.wake_all();
  }
  bool has_calls() const { return GateWord(word_.load()).calls() > 0; }

  // In the child of a fork, threads that have begun something do not exist. is_called: the forking one had begun a
  // call.
  void reset_in_child(bool is_called) {
    word_.store(is_called ? GateWord::kCall : 0);
    changed_.reset_in_child();
  }

 private:
  static constexpr uint64_t kLookNs = 1'000'000;  // at the latest, a waiting thread looks again

  bool begin_move(uint64_t announced) {
    uint64_t word = word_.load();
    while (GateWord(word).calls() == 0) {
      if (word_.compare_exchange_weak(word, word + GateWord::kMove - announced)) return true;
    }
    return false;
  }
  bool count_call() {
    uint64_t word = word_.load();
    while (GateWord(word).waiting() == 0) {
      if (word_.compare_exchange_weak(word, word + GateWord::kCall)) return true;
    }
    return false;
  }
  // Other fibers of a worker run meanwhile.
  template <typename Try>
  bool wait_until(Try succeeds, uint64_t max_ns) {
    if (succeeds()) return true;  // without a look at the clock
    uint64_t end = now_ns() + max_ns;
    for (;;) {
      uint32_t seen = changed_.value();
      if (succeeds()) return true;
      uint64_t now = now_ns();
      if (now >= end) return false;
      if (fibers::in_fiber()) farside_fiber_yield();
      else changed_.wait(seen, std::min(kLookNs, end - now));
    }
  }

  std::atomic<uint64_t> word_{0};
  Event changed_;
};

}  // namespace farside::objects
