// A model of moves of objects beside calls that follow owners (docs/internals/offload.md, src/objects/move_gate.h): one
// object, its owner inside another object, and the server's copies of their pages, at the granularity of single atomic
// operations and page writes. The owner is on page 0; the object is on one of the others, and each move takes it to the
// next one. Evictors write changed pages at any time.
//
// Threads run scripts of one letter per operation:
//   m a move, which waits for calls   e a move, which may give up waiting   c a call, which may give up at its start
//   h a thread that stops moves itself, and changes the object where it is
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenMoves {
  kNothing,
  kIgnoresCalls,      // a move begins while a call is in progress
  kTestsFirst,        // a move tests for calls, and is counted later
  kIgnoresMoves,      // a call does not wait for the end of moves
  kWritesFirst,       // a call writes pages to the server before it stops moves
  kPermitsEarly,      // moves begin before the function has ended
  kEndsBeforeOwner,   // a move ends before the owner has the new address
  kStaysCounted,      // a move that finds the owner marked is not ended
  kStaysAnnounced,    // a move that has waited still counts as waiting
  kGivesUpAnnounced,  // so does one that gives up
  kUsesLate,          // a thread that has stopped moves uses an address after it permits them
};

struct MoveScenario {
  std::vector<std::string> threads;  // up to MoveModel::kThreads
  BrokenMoves broken = BrokenMoves::kNothing;
};

class MoveModel {
 public:
  static constexpr unsigned kThreads = 3, kPages = 4;
  // The threads, their patience, which may end at any time, and an evictor for each page.
  static constexpr unsigned kPatience = kThreads, kEvictor = 2 * kThreads, kActors = kEvictor + kPages;
  static constexpr uint8_t kMark = 128;

  enum class Pc : uint8_t {
    kStart,
    kCount,
    kWait,
    kMark,
    kCopy,
    kPublish,
    kEndMove,
    kStopMoves,
    kStore,
    kFollow,
    kReadObject,
    kEndCall,
    kStopHere,
    kLocate,
    kChange,
    kPermit
  };
  struct Thread {
    Pc pc = Pc::kStart;
    uint8_t op = 0;
    uint8_t page = 0;   // of the object; the next one that a call writes
    uint8_t value = 0;  // of the object
  };
  struct State {
    Thread threads[kThreads];
    uint8_t calls = 0, moving = 0, waiting = 0;  // the gate's word
    // Page 0: the owner; others: not 0, the value of the object that is there.
    uint8_t near[kPages] = {1, 1}, far[kPages] = {}, dirty = 3;
    uint8_t truth = 1;  // the object's value
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit MoveModel(MoveScenario scenario) : scenario_(std::move(scenario)) {}
  State start() const { return {}; }
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State&) const { return nullptr; }
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenMoves rule) const { return scenario_.broken == rule; }
  char op(unsigned i, const Thread& t) const {
    return i < scenario_.threads.size() && t.op < scenario_.threads[i].size() ? scenario_.threads[i][t.op] : 0;
  }
  static void next(Thread& t);
  static void write(State& s, unsigned page, uint8_t value);
  static void store(State& s, unsigned page);
  bool gives_up(State& s, unsigned i) const;
  bool begin(State& s, unsigned i) const;
  bool step_move(State& s, Thread& t) const;
  bool step_call(State& s, Thread& t, const char** wrong) const;
  bool step_holder(State& s, Thread& t) const;

  MoveScenario scenario_;
};

}  // namespace farside::model
