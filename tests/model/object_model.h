// A model of one object in one segment: its owner, its access bit, the state of the segment, the threads and the
// evacuator, at the granularity of single atomic operations. The steps follow src/objects;
// docs/internals/object_paths.md describes the phases. Eviction and fetching of pages are modelled in page_model: here
// a segment has one content, near or far. Grace periods are ideal: a mask of the scopes that were open.
//
// Threads run scripts of one letter per operation:
//   r read   w write   m move the owner   x destroy the object   n dereference a neighbour, which sets the line's
//   access bit
// A program may not move or destroy a pointer while other threads use it. Therefore m and x are in the script of one
// thread only, and no other thread uses the object.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenObjects {
  kNothing,
  kNoFirstGrace,      // access bits are cleared while a thread may still set one
  kNoSecondGrace,     // the segment is emptied while pointers from before are in use
  kIgnoresHolders,    // and while a thread that found it closed holds it
  kNoMark,            // a thread moves the object without marking its owner
  kNoReload,          // the slow path uses the word that the fast path loaded
  kMoveWithoutLock,   // an owner of an object in an emptying segment moves while the evacuator looks for it
  kHeaderNoOverride,  // moving it changes the header, which the evacuator has read, and writes no override
  kReuseAtOnce,       // an empty segment is reused while a thread may still have an old word
  kHandlerNoMark,     // an eviction handler is called for an object that is not marked
  kNoHandler,         // an object leaves before its eviction handler is called
};

// What the eviction handler of the object's structure does with it, if there is one.
enum class Handler { kNone, kWrites, kDrops };

struct ObjectScenario {
  std::vector<std::string> threads;  // up to kThreads
  BrokenObjects broken = BrokenObjects::kNothing;
  Handler handler = Handler::kNone;
};

class ObjectModel {
 public:
  static constexpr unsigned kThreads = 3, kEvacuator = kThreads, kActors = kThreads + 1;

  static constexpr uint8_t kNoOverride = 2;

  enum class Segment : uint8_t { kOpen, kClosing, kClosed, kEmptying, kDead, kReused };
  enum class Word : uint8_t { kNull, kOld, kOldMoving, kNew };  // where the object is according to an owner
  enum class Pc : uint8_t {
    kBegin,
    kFast,
    kReload,
    kTestState,
    kSetAccess,
    kHold,
    kMark,
    kCopy,
    kLock,
    kPublish,
    kAccess,
    kEnd,
    kMoveTo,
    kMoveFrom,
    kMoveHeader,
    kMoveLock,
    kMoveLocked,
    kDestroy,
    kDestroyLock,
    kDestroyLocked,
    kNeighbour,
    kNeighbourSet,
    kDone
  };
  enum class Evacuator : uint8_t {
    kClose,
    kClearAccess,
    kEmpty,
    kReadHeader,
    kLock,
    kFindOwner,
    kMark,
    kCopy,
    kLockAgain,
    kPublish,
    kHandle,
    kRelease,
    kEvict,
    kEvicted,
    kDead,
    kReuse,
    kDone
  };
  struct Thread {
    Pc pc = Pc::kDone;
    uint8_t op = 0;
    uint8_t in_scope = 0, holds = 0;
    Word seen = Word::kNull;  // the word that it loaded
    uint8_t owner = 0;        // index of the owner that it uses
    uint8_t at_new = 0;       // its raw pointer is to the new place
    uint8_t copy = 0;
  };
  struct State {
    Thread threads[kThreads];
    Segment segment = Segment::kOpen;
    uint8_t holders = 0, access = 0, locked = 0;
    Word owners[2] = {Word::kOld, Word::kNull};
    uint8_t header = 0;                    // the owner in the header of the old segment
    uint8_t owner_override = kNoOverride;  // the owner in an override, which has precedence over the header
    uint8_t old_content = 1, new_content = 0;
    uint8_t expected = 1, writes = 1;  // the last value written, and the number of writes
    uint8_t alive = 1;
    uint8_t handled = 0;  // the content with which the handler left the object
    Evacuator evacuator = Evacuator::kClose;
    uint8_t evacuator_header = 0, evacuator_owner = 0, evacuator_copy = 0, waits_for = 0;  // waits_for: mask
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit ObjectModel(const ObjectScenario& scenario) : scenario_(scenario) {}
  State start() const;
  // Makes one step of an actor. False: it is blocked or has ended.
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenObjects rule) const { return scenario_.broken == rule; }
  void begin_op(Thread& t, unsigned i) const;
  bool step_thread(State& s, unsigned i, const char** wrong) const;
  bool step_deref(State& s, unsigned i, const char** wrong) const;
  bool step_take(State& s, Thread& t) const;
  bool step_move(State& s, Thread& t) const;
  bool step_destroy(State& s, Thread& t, const char** wrong) const;
  bool step_evacuator(State& s, const char** wrong) const;
  bool step_evacuate(State& s, const char** wrong) const;
  bool step_handler(State& s, const char** wrong) const;
  void end_scope(State& s, unsigned i) const;
  void access(State& s, Thread& t, bool write, const char** wrong) const;
  char letter(const Thread& t, unsigned i) const { return scenario_.threads[i][t.op]; }
  static uint8_t scopes(const State& s);

  ObjectScenario scenario_;
};

}  // namespace farside::model
