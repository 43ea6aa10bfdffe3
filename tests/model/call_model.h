// A model of calls of functions on a memory server (docs/internals/offload.md): one page of far memory, which is its
// window of the page table, the kernel's mapping, the server's copy, and the process of functions, at the granularity
// of single atomic operations and system calls. Each thread has bytes of its own on the page: what it wrote before a
// call, the function must see, whatever the other thread does with its bytes.
//
// Threads run scripts of one letter per operation:
//   r read   w write   k a system call writes to the pinned page   c a call that reads the page
//   x a call that changes the page   b as x, but the connection breaks, and it is not known whether the function ran
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenCall {
  kNothing,
  kNoUnsettleAtUpgrade,   // a first write does not unsettle the window
  kNoUnsettleAtClaim,     // a fetch unsettles when it publishes the page, which was mapped writable before
  kUnsettleBeforeChange,  // the window is unsettled before the word changes
  kSettleWithoutTicket,   // a call settles the window although a change or another call came in between
  kSameTickets,           // tickets of several calls are equal
  kTrustTickets,          // a window that another call is about to settle counts as settled
  kSettleDirty,           // a window is settled although a page had to be written
  kScanSkipsOwned,        // a read call does not wait for the owner of a page
  kNoProtection,          // a read call writes a page that threads can change meanwhile
  kCleanBeforeWrite,      // a page counts as clean before the server has it
  kPinnedBecomesClean,    // a page to which a system call writes counts as clean
  kCallBeforeWrite,       // the function starts before the server has the page
  kNoUpgradingBit,        // the write protection is lifted without owning the page
  kWrittenStaysMapped,
  kWrittenIsNotStored,  // dirty pages of a written range are dropped
  kWrittenIsNotOwned,   // faults fetch the page during the call
  kWrittenIgnoresPins,
  kStoredWithoutProtection,  // the page is stored for a written call while threads can change it
  kBreakDoesNotWait,         // after a broken connection, the page is given back while the function may run
  kGiveBackKeepsOldMapping,  // the near copy of before the call is mapped again
};

struct CallScenario {
  std::vector<std::string> threads;  // 2 at most
  unsigned evictions = 1;
  BrokenCall broken = BrokenCall::kNothing;
};

class CallModel {
 public:
  static constexpr unsigned kThreads = 2;
  // The threads, the evictor, the process of functions.
  static constexpr unsigned kEvictor = kThreads, kFunction = kThreads + 1, kActors = kThreads + 2;
  static constexpr uint8_t kUndefined = 255, kSettled = 254;

  enum class Word : uint8_t { kFar, kFetching, kNear, kEvicting };
  enum class Pc : uint8_t {
    kStart,
    kFault,
    kEarlyUnsettle,
    kClaim,
    kClaimed,
    kFetch,
    kMap,
    kPublish,
    kPublished,
    kUpgrade,
    kUpgrading,
    kUnprotect,
    kUpgraded,
    kPin,
    kPinned,
    kUnpin,
    kTicket,
    kScan,
    kProtect,
    kStore,
    kRelease,
    kSettle,
    kCall,
    kLateStore,
    kOwn,
    kOwnProtect,
    kOwnStore,
    kOwnUnmap,
    kRun,
    kReopen,
    kGiveBack,
    kDone
  };
  struct Thread {
    Pc pc = Pc::kStart;
    uint8_t op = 0;
    uint8_t write = 0;   // the fault is a write
    uint8_t ticket = 0;  // of the call
    uint8_t dirty = 0;   // the call found the page dirty
    uint8_t pinned = 0;  // and pinned
    uint8_t had_copy = 0;
    uint8_t content[kThreads] = {};  // fetched
  };
  struct State {
    Thread threads[kThreads];
    Word word = Word::kFar;
    uint8_t dirty = 0, upgrading = 0, pins = 0;
    uint8_t mapped = 0, writable = 0;
    uint8_t near[kThreads] = {}, far[kThreads] = {}, truth[kThreads] = {};
    uint8_t settled = 0, next_ticket = 1;
    uint8_t written_call = 0;  // thread + 1: the holder of the mutex
    uint8_t function = 0;      // thread + 1: whose function the process runs, after its connection broke
    uint8_t eviction = 0, evicted = 0;
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit CallModel(CallScenario scenario) : scenario_(std::move(scenario)) {}
  State start() const { return {}; }
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenCall rule) const { return scenario_.broken == rule; }
  char op(unsigned i, const Thread& t) const {
    return i < scenario_.threads.size() && t.op < scenario_.threads[i].size() ? scenario_.threads[i][t.op] : 0;
  }
  uint8_t value(unsigned i, const Thread& t) const { return static_cast<uint8_t>(1 + i * 16 + t.op); }
  static bool is_owned(const State& s) { return s.word == Word::kFetching || s.word == Word::kEvicting || s.upgrading; }
  static void unsettle(State& s) { s.settled = 0; }
  static void store(State& s);
  static void next(Thread& t);
  bool begin(State& s, unsigned i, const char** wrong) const;
  bool step_fault(State& s, unsigned i) const;
  bool step_upgrade(State& s, Thread& t) const;
  bool step_pin(State& s, unsigned i) const;
  bool step_read_call(State& s, unsigned i, const char** wrong) const;
  bool step_written_call(State& s, unsigned i, const char** wrong) const;
  bool step_evictor(State& s) const;

  CallScenario scenario_;
};

}  // namespace farside::model
