// A model of one object in one segment: its owner, its access, the segment's state, and everybody who works on it, at
// the granularity of single atomic operations. The steps follow src/objects (docs/internals/object_paths.md names the phases).
// How pages come and go is page_model's affair: here a segment has one content, wherever it is. Grace periods are
// perfect: a mask of the scopes that were open.
//
// Threads run scripts, one letter an operation:
//   r read   w write   m move the owner   x end the object   n use a neighbour, which gives the line's access
// A program may not move or end a pointer while others use it, so m and x stand in one thread's script only, and that
// alone uses the object.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace farside::model {

// Rules that a run leaves out, to prove that the model finds out.
enum class BrokenObjects {
  kNothing,
  kNoFirstGrace,     // licences are taken away while somebody may still give one
  kNoSecondGrace,    // the segment is emptied although pointers from before are in use
  kIgnoresHolders,   // and although somebody derefs it while it is closed
  kNoMark,           // a thread takes the object without making it its own
  kNoReload,         // the slow path goes on with the word that the fast path saw
  kMoveWithoutLock,  // an owner moves away from an emptying segment while the evacuator looks for it
  kHeaderNoNote,     // who moves an owner of an emptying segment changes the header, which the evacuator has read
  kReuseAtOnce,      // an empty segment gets new objects while somebody may still hold an old word
};

struct ObjectScenario {
  std::vector<std::string> threads;  // up to kThreads
  BrokenObjects broken = BrokenObjects::kNothing;
};

class ObjectModel {
 public:
  static constexpr unsigned kThreads = 3, kEvacuator = kThreads, kActors = kThreads + 1;

  static constexpr uint8_t kNoNote = 2;

  enum class Segment : uint8_t { kOpen, kClosing, kClosed, kEmptying, kDead, kReused };
  enum class Word : uint8_t { kNull, kOld, kOldMoving, kNew };  // where an owner says the object is
  enum class Pc : uint8_t {
    kBegin,
    kFast,
    kReload,
    kLook,
    kLicense,
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
    kKill,
    kKillLock,
    kKillLocked,
    kNeighbour,
    kNeighbourLicense,
    kDone
  };
  enum class Evacuator : uint8_t {
    kClose,
    kTakeLicence,
    kEmpty,
    kReadHeader,
    kLock,
    kFindOwner,
    kMark,
    kCopy,
    kLockAgain,
    kPublish,
    kDead,
    kReuse,
    kDone
  };
  struct Thread {
    Pc pc = Pc::kDone;
    uint8_t op = 0;
    uint8_t in_scope = 0, holds = 0;
    Word seen = Word::kNull;  // the word it loaded
    uint8_t owner = 0;        // which owner it goes through
    uint8_t at_new = 0;       // its raw pointer
    uint8_t copy = 0;
  };
  struct State {
    Thread threads[kThreads];
    Segment segment = Segment::kOpen;
    uint8_t holders = 0, access = 0, locked = 0;
    Word owners[2] = {Word::kOld, Word::kNull};
    uint8_t header = 0;      // the owner that the old segment's header names
    uint8_t note = kNoNote;  // that a note names, which goes before the header
    uint8_t old_content = 1, new_content = 0;
    uint8_t expected = 1, writes = 1;  // the last value written, and how many were
    uint8_t alive = 1;
    Evacuator evacuator = Evacuator::kClose;
    uint8_t evacuator_header = 0, evacuator_owner = 0, evacuator_copy = 0, waits_for = 0;  // a mask of threads
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit ObjectModel(const ObjectScenario& scenario) : scenario_(scenario) {}
  State start() const;
  // One step of an actor. False: it cannot do any now.
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
  bool step_change(State& s, unsigned i, const char** wrong) const;
  bool step_evacuator(State& s, const char** wrong) const;
  void end_scope(State& s, unsigned i) const;
  void access(State& s, Thread& t, bool write, const char** wrong) const;
  char letter(const Thread& t, unsigned i) const { return scenario_.threads[i][t.op]; }
  static uint8_t scopes(const State& s);

  ObjectScenario scenario_;
};

}  // namespace farside::model
