// A model of one page of far space: its word, the kernel's mapping, its frames, the server's copy, the gate, and all
// threads that work on it, at the granularity of single atomic operations and system calls. The word is the pager's own
// PageWord; the steps follow src/pager line by line (docs/internals/page_states.md names the functions). Explored by
// explorer.h.
//
// Threads run scripts of one letter per operation:
//   r read   w write   k a system call writes to the pinned page   d discard   s seal and unseal   f fork
//   z free and allocate again; the other threads do not access the page meanwhile
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "pager/pages/page_word.h"

namespace farside::model {

// Rules of the pager that a run omits, to prove that the model detects the omission.
enum class Broken {
  kNothing,
  kNoUpgradingBit,         // the write protection is lifted without owning the page
  kNoProtectionAfterFork,  // shared frames stay unprotected and unmarked
  kNoCopyInUpgrade,        // a shared frame is not copied while the page is owned
  kNoPauseAtFork,          // evictions continue during a fork
  kNoGateAtFork,           // faults continue during a fork
  kDropSkipsUntouched,     // a discard does not claim untouched pages
  kDropDoesNotWait,        // a discard does not wait for the server
  kUnqueueAfterReading,    // the queued bit is cleared after the state was read
  kEvictorIgnoresPins,
  kHoldAfterUnmap,         // frames are referenced too late
  kSealWithoutProtection,  // a sealed page is written out while its mapping is writable
  kForkProtectsPinned,     // fork write-protects pages to which a system call writes
  kCommitIgnoresCow,       // a freed page is filled with zeros although its frame may be shared
  kCommitDoesNotInsert,    // a freed page that is used again is not queued again
  kFreedKeepsCopy,         // the server keeps the content of a freed page
};

struct Scenario {
  std::vector<std::string> threads;  // at most 3
  unsigned evictors = 1;             // at most 2
  unsigned frames = 2;               // the budget
  bool holds_fail = false;           // the kernel may refuse to hold a frame
  Broken broken = Broken::kNothing;
};

enum class Pc : uint8_t {
  kAccess,
  kSealed,
  kGate,
  kLoad,
  kWait,
  kTake,
  kClaim,
  kGiveBack,
  kFetch,
  kMap,
  kPublish,
  kInsert,
  kPush,
  kUpgrade,
  kUnprotect,
  kTouch,
  kUpgraded,
  kLeave,
  kPin,
  kPinGate,
  kPinCount,
  kKernelWrite,
  kUnpin,
  kOwn,
  kOwnTry,
  kOwnWait,
  kDropUnmap,
  kDropFar,
  kDropAck,
  kDropFinish,
  kGiveHeld,
  kFree,
  kCommit,
  kCommitTry,
  kCommitOwn,
  kCommitZero,
  kCommitFinish,
  kCommitted,
  kSealProtect,
  kSealWrite,
  kSealUnmap,
  kSealFinish,
  kUnseal,
  kForkShut,
  kForkDrain,
  kForkPause,
  kForkStill,
  kForkSnapshot,
  kForkFork,
  kForkLook,
  kForkMark,
  kForkProtect,
  kForkResume,
  kForkOpen,
  kDone,
};

enum class EvictorPc : uint8_t {
  kIdle,
  kReadState,
  kUnqueue,
  kClaim,
  kForget,
  kReinsert,
  kRepush,
  kHold,
  kGiveUp,
  kUnmap,
  kLateHold,
  kRelease,
  kWrite,
  kFinish,
  kGive,
};

using Value = uint8_t;  // content of a page; every write of a scenario is different
constexpr Value kZeroPage = 0;
constexpr Value kForgotten = 255;  // the server's content after a discard, which must never be read
constexpr uint8_t kNoFrame = 255;

struct Mapping {
  uint8_t frame = kNoFrame;
  uint8_t write_protected = 0;  // by userfaultfd
  uint8_t exclusive = 0;        // no copy-on-write pending
  bool present() const { return frame != kNoFrame; }
};

struct Thread {
  uint64_t seen = 0;  // the word it loaded last
  Pc pc = Pc::kDone;
  Pc back = Pc::kDone;  // where to continue after the gate
  uint8_t op = 0;       // index in the script
  uint8_t write = 0;    // the fault is a write
  uint8_t frames = 0;   // taken from the budget, not yet assigned to the page
  uint8_t inside = 0;   // inside the gate
  Value content = 0;    // the fetched content
  uint8_t owns = 0;
};

struct EvictorState {
  EvictorPc pc = EvictorPc::kIdle;
  uint8_t dirty = 0;
  uint8_t frames = 0;
  uint8_t pipe = kNoFrame;
  uint8_t near = 0;  // the state that the broken variant read
  uint8_t unused[3] = {};
};

struct State {
  static constexpr size_t kThreads = 3, kEvictors = 2, kFrames = 6;
  uint64_t word = 0;
  uint64_t child_word = 0;
  Thread threads[kThreads];
  EvictorState evictors[kEvictors];
  Mapping here, child;  // the kernel's mappings in this process and in the forked child
  Value frames[kFrames] = {};
  Value far = kForgotten, child_far = kForgotten;
  Value truth = kZeroPage;        // the program's last write
  Value child_truth = kZeroPage;  // what the child must read
  uint8_t forked = 0, child_wrote = 0;
  uint8_t gate_owner = 0;  // thread + 1
  uint8_t pausing = 0;
  uint8_t queue = 0;     // entries of the policy's queue for the page
  uint8_t used = 0;      // frames counted by the budget
  uint8_t discards = 0;  // discards in flight to the server
  uint8_t freed = 0;     // the page belongs to no allocation
};
// States are compared and hashed as bytes.
static_assert(std::has_unique_object_representations_v<State>);

inline pager::PageWord word_of(const State& s) { return pager::PageWord(s.word); }
inline void set_word(State& s, pager::PageWord w) { s.word = w.bits(); }
inline bool is_owned(pager::PageWord w) {
  return w.is(pager::PageState::kFetching) || w.is(pager::PageState::kEvicting) || w.has(pager::PageWord::kUpgrading);
}
inline void go(Thread& t, Pc pc) { t.pc = pc; }

class PageModel {
 public:
  using State = model::State;
  explicit PageModel(Scenario scenario) : scenario_(std::move(scenario)) {}

  State start() const;
  // The actors: threads, evictors (each twice: without and with failing), the child, the network.
  static constexpr unsigned kActors = State::kThreads + 2 * State::kEvictors + 2;
  // Makes one step of one actor. False: it has nothing to do, or waits. *violation is set if the step shows one.
  bool step(State& s, unsigned actor, const char** violation) const;
  // The invariants of every state; nullptr if they hold.
  const char* check(const State& s) const;
  bool done(const State& s) const;
  // The invariants of final states.
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  enum class Store { kDone, kFaults };
  bool broken(Broken b) const { return scenario_.broken == b; }
  bool thread_step(State& s, unsigned i, const char** violation) const;
  bool fault_step(State& s, unsigned i, const char** violation) const;
  bool fetch_step(State& s, Thread& t) const;
  bool upgrade_step(State& s, Thread& t, const char** violation) const;
  bool pin_step(State& s, unsigned i, const char** violation) const;
  bool range_step(State& s, unsigned i, const char** violation) const;
  bool drop_step(State& s, unsigned i) const;
  bool free_step(State& s, unsigned i, const char** violation) const;
  bool frees(unsigned i, const Thread& t) const { return scenario_.threads[i][t.op] == 'z'; }
  bool seal_step(State& s, Thread& t) const;
  bool fork_step(State& s, unsigned i, const char** violation) const;
  bool after_fork_step(State& s, unsigned i, const char** violation) const;
  bool evictor_step(State& s, unsigned i, bool fails) const;
  bool select_step(State& s, EvictorState& e) const;
  bool batch_step(State& s, EvictorState& e, bool fails) const;
  bool child_step(State& s) const;
  void next_op(State& s, unsigned i) const;
  void begin_op(Thread& t, unsigned i) const;
  void fault(Thread& t, bool write, Pc back) const;

  static uint8_t new_frame(State& s, Value content);
  static Value value_in_child(const State& s);
  static unsigned references(const State& s, uint8_t frame);
  static Store store(State& s, Mapping& m, const Value* value, bool checks_protection);
  Value value_of(const State& s, unsigned i) const { return static_cast<Value>(1 + i * 32 + s.threads[i].op); }

  Scenario scenario_;
};

}  // namespace farside::model
