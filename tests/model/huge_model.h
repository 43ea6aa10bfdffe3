// A model of one huge page of two pages: page words, the kernel's mappings, frames, the frame pool, the server's
// copies, the queue of the policy and that of huge pages, sums, and all actors that work on them, at the granularity of
// single atomic operations and system calls. The words are the pager's own PageWord; the steps follow src/pager line by
// line (docs/internals/huge_pages.md names the functions). What page_model explores already (gate, queue entries,
// frames that are taken before a claim) is one step here. Explored by explorer.h.
//
// Threads run scripts of two letters per operation: what, and the page (0, 1, or * for both).
//   r read   w write   x write, and all pages become writable   o write what the page held at the start
//   k a system call writes to the pinned page   d discard   b write back   z free and allocate again
//   s fetch the huge page for a read   t for writes   p for writes that are presumed   a for a read, ahead
//   f fill the untouched huge page   y fork   j wait for the end of the other threads
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "pager/pages/page_word.h"

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenHuge {
  kNothing,
  kPushBeforePublish,       // I7 precedes I6
  kPublishClean,            // I6 calls pages clean that another thread may have written
  kPublishWithoutCow,       // I6 calls them writable
  kSumOfChangedPage,        // I4 records the sum of what the server does not have
  kSharedSums,              // fetches of one huge page share one array of sums before they own all its pages
  kCopyBeforeProtection,    // I4 protects the pages after it copied them
  kClaimNearPinned,         // I3 claims pinned pages
  kClaimNearUpgrading,      // I3 claims pages that are being made writable
  kRevertDoesNotInsert,     // I3 fails, and does not insert the pages that are near again
  kRevertKeepsHuge,         // I3 fails, and the pages that are near again have kHuge
  kCopyInAll,               // I5a publishes pages that are not its own
  kCopyInForgetsStores,     // I5a calls pages clean that were moved and may have been written
  kNoHelp,                  // no waiting thread completes the fetch of another
  kLiftBeforeOwn,           // U2 precedes U1
  kClearAfterLook,          // O1 clears the huge page's flag after O2 and O3c
  kTakePinned,              // O2 claims pinned pages
  kTakeUpgrading,           // O2 claims pages that are being made writable
  kMoveShared,              // O3 moves a frame that a child shares
  kUnclaimDoesNotInsert,    // O3a does not insert pages without kHuge into the policy
  kMovedBackClean,          // O3a calls pages protected that were moved out and back
  kNoPush,                  // O3b does not happen
  kNoBreakUp,               // O3c does not happen
  kPushBeforeUnclaim,       // O3b precedes O3a
  kBreakUpBeforeUnclaim,    // O3c precedes O3a
  kBreakUpDoesNotInsert,    // O3c does not insert pages into the policy
  kSumWithoutHuge,          // O4 uses the sum of a page that lost kHuge
  kWriteBackKeepsHuge,      // a page that was written back has kHuge
  kWriteBackDoesNotInsert,  // a page that was written back is not inserted into the policy
  kFreedKeepsHuge,          // a freed page that keeps its frame has kHuge
  kUnheldKeepsHuge,         // a page that an evictor could not hold has kHuge
};

struct HugeScenario {
  std::vector<std::string> threads;  // at most 3; with one, no other thread writes
  std::string start = "ff";          // the pages: f far, u untouched
  unsigned huge_evictors = 1;        // at most 2
  bool evicts_pages = true;
  unsigned pool = 1;        // free frames of the pool, at most 2
  bool refuses = false;     // the kernel may refuse a move
  bool stops = false;       // the kernel may stop a move after one page
  bool holds_fail = false;  // the kernel may refuse to hold a page
  BrokenHuge broken = BrokenHuge::kNothing;
};

class HugeModel {
 public:
  static constexpr unsigned kPages = 2, kThreads = 3, kEvictors = 2, kSlots = 2, kFrames = 8;
  using Value = uint8_t;  // content of a page
  static constexpr Value kZeroPage = 0;
  static constexpr Value kForgotten = 255;  // content that must never be read
  static constexpr Value kNoSum = 254;      // a sum that no content has
  static constexpr uint8_t kNone = 255;     // frame, slot

  enum class Pc : uint8_t {
    kAccess,
    kFault,
    kMap,
    kPublish,
    kLift,
    kLifted,
    kOwnAll,
    kLiftRun,
    kClearRun,
    kPin,
    kKernelWrite,
    kUnpin,
    kOwn,
    kDrop,
    kDropFinish,
    kFree,
    kKeep,
    kTakeBack,
    kZero,
    kStore,
    kStoreProtect,
    kStoreWrite,
    kStoreReturn,
    kLook,
    kSlot,
    kClaim,
    kUnclaim,
    kSums,
    kStreamWait,
    kFork,
    kJoin,
    kDone,
  };
  enum class FetchPc : uint8_t {
    kNone,
    kStarting,
    kRead,
    kClaimNear,
    kRevert,
    kProtect,
    kCopy,
    kUnmap,
    kMove,
    kMoveProtect,
    kInstall,
    kPublish,
    kFlag,
    kEnqueue,
    kEnd,
    kCopyMap,
    kCopyPublish,
    kCopyEnd,
  };
  enum class OutPc : uint8_t {
    kIdle,
    kClear,
    kClaim,
    kMove,
    kMoveBack,
    kUnclaim,
    kFlag,
    kEnqueue,
    kBreakUp,
    kInsert,
    kWrite,
    kFinish,
    kRelease,
  };
  enum class PagePc : uint8_t { kIdle, kLook, kClaim, kHold, kUnheld, kUnmap, kRelease };

  struct Page {
    uint64_t word = 0;
    uint8_t frame = kNone;        // the kernel's mapping
    uint8_t write_protected = 0;  // by userfaultfd
    uint8_t exclusive = 0;        // no copy-on-write pending
    uint8_t child_frame = kNone;
    Value far = kForgotten;
    Value truth = kZeroPage;        // the program's last write
    Value child_truth = kZeroPage;  // what the child must read
    Value sum = kNoSum;
    Value frames[kFrames] = {};  // content of the frames that hold this page, by their numbers
  };
  struct Thread {
    uint64_t seen = 0;  // the word before it owned the page
    Pc pc = Pc::kDone;
    uint8_t op = 0;      // position in the script
    uint8_t at = 0;      // page
    uint8_t mask = 0;    // pages
    uint8_t frames = 0;  // of pages that it owns
    uint8_t inside = 0;  // the operation is past its beginning: a fork waits
    uint8_t unused[2] = {};
  };
  struct Fetch {
    FetchPc pc = FetchPc::kNone;
    uint8_t slot = kNone;
    uint8_t claimed = 0, empty = 0, near = 0;  // masks of pages
    uint8_t write = 0, has_sums = 0;
    uint8_t at = 0;
    uint8_t moved = 0;   // pages that are in place
    uint8_t owned = 0;   // pages that I5a published
    uint8_t frames = 0;  // counted for it
    uint8_t generation = 0;
    uint8_t ahead = 0;
    Value sums[kPages] = {kNoSum, kNoSum};
    uint8_t unused = 0;
  };
  struct Out {
    OutPc pc = OutPc::kIdle;
    uint8_t at = 0, claimed = 0, retry = 0, slot = kNone, moved_back = 0, frames = 0, unused = 0;
  };
  struct PageOut {
    PagePc pc = PagePc::kIdle;
    uint8_t page = 0, dirty = 0, pipe = kNone, frames = 0;
    uint8_t unused[3] = {};
  };
  struct State {
    Page pages[kPages];
    Thread threads[kThreads];
    Fetch fetches[kThreads];
    Out out[kEvictors];
    PageOut page_out;
    uint8_t slots[kSlots][kPages] = {{kNone, kNone}, {kNone, kNone}};
    uint8_t free_slots = 0, taken_slots = 0;  // masks
    uint8_t queued = 0;                       // HugeTable::kQueued
    uint8_t entries = 0;                      // of the huge page queue
    uint8_t used = 0;                         // frames counted by the budget
    uint8_t generation = 0;                   // of the array of sums
    uint8_t impossible = 0;                   // a word changed in a way that it may not
    uint8_t forked = 0;
    uint8_t unused[4] = {};
  };
  static_assert(std::has_unique_object_representations_v<State>);

  // The actors: threads; fetches and evictors of huge pages, each thrice: the kernel moves, refuses, or stops; the
  // evictor of single pages, once for each page it may take, and once for a hold that fails.
  static constexpr unsigned kFetchActors = kThreads, kOutActors = kFetchActors + 3 * kThreads;
  static constexpr unsigned kPageActors = kOutActors + 3 * kEvictors, kActors = kPageActors + kPages + 1;

  explicit HugeModel(const HugeScenario& scenario) : scenario_(scenario) {}
  State start() const;
  // Makes one step of one actor. False: it has nothing to do, or waits. *wrong is set if the step shows a violation.
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  using PageWord = pager::PageWord;
  enum class Kernel { kMoves, kRefuses, kStops };

  bool broken(BrokenHuge rule) const { return scenario_.broken == rule; }
  bool is_alone() const { return scenario_.threads.size() == 1; }
  char kind_of(unsigned i, const Thread& t) const { return scenario_.threads[i][t.op * 2]; }
  unsigned first_of(unsigned i, const Thread& t) const;
  unsigned end_of(unsigned i, const Thread& t) const;
  static Value start_value(unsigned page) { return static_cast<Value>(1 + page); }
  Pc begin_of(char kind) const;
  void begin_op(Thread& t, unsigned i) const;
  void next_op(State& s, unsigned i) const;

  // huge_model.cc: the kernel, threads, invariants
  // Beyond the last page, where loops end: a word that no step uses.
  static PageWord word_of(const State& s, unsigned page) {
    return page < kPages ? PageWord(s.pages[page].word) : PageWord();
  }
  static bool is_owned(PageWord w) {
    return w.is(pager::PageState::kFetching) || w.is(pager::PageState::kEvicting) || w.has(PageWord::kUpgrading);
  }
  static void change(State& s, unsigned page, PageWord next);
  static void insert(State& s, unsigned page);
  static unsigned references(const State& s, unsigned page, uint8_t frame);
  static uint8_t new_frame(State& s, unsigned page, Value content);
  static void map(State& s, unsigned page, Value content, bool write_protect);
  static bool store(State& s, unsigned page, const Value* value);
  static Value content_of(const State& s, unsigned page);
  static bool is_same_as_far(const State& s, unsigned page, Value content);
  bool thread_step(State& s, unsigned i, const char** wrong) const;
  bool access_step(State& s, unsigned i, const char** wrong) const;
  bool fault_step(State& s, unsigned i) const;
  bool fetch_page_step(State& s, unsigned i) const;
  bool upgrade_step(State& s, unsigned i) const;
  bool upgrade_all_step(State& s, unsigned i) const;
  bool is_covered(const State& s, unsigned page) const;

  // huge_model_ranges.cc: RangeOps, forks
  bool pin_step(State& s, unsigned i, const char** wrong) const;
  bool range_step(State& s, unsigned i) const;
  bool free_step(State& s, unsigned i, const char** wrong) const;
  bool store_step(State& s, unsigned i) const;
  bool fork_step(State& s, unsigned i) const;

  // huge_model_in.cc: HugePath
  bool start_step(State& s, unsigned i) const;
  bool claim_step(State& s, unsigned i) const;
  bool is_driven(const State& s, unsigned i) const;
  bool in_step(State& s, unsigned i, Kernel kernel, const char** wrong) const;
  bool near_step(State& s, Fetch& f, const char** wrong) const;
  bool move_step(State& s, Fetch& f, Kernel kernel) const;
  bool publish_step(State& s, Fetch& f) const;
  bool copy_in_step(State& s, Fetch& f) const;
  static bool comes_whole(const State& s);
  static bool is_excluded(PageWord w) { return (w.bits() & (PageWord::kSealed | PageWord::kFreed)) != 0; }

  // huge_model_out.cc: HugeEvictor, Evictor
  bool out_step(State& s, Out& e, Kernel kernel, const char** wrong) const;
  bool claim_out_step(State& s, Out& e) const;
  bool move_out_step(State& s, Out& e, Kernel kernel) const;
  bool return_step(State& s, Out& e) const;
  bool leave_step(State& s, Out& e, const char** wrong) const;
  static void claim_page(State& s, PageOut& e, unsigned page);
  static void release_page(State& s, PageOut& e, unsigned page);
  bool page_out_step(State& s, unsigned choice, const char** wrong) const;

  static uint8_t take_slot(State& s, bool empty);
  static void put_slot(State& s, uint8_t slot);
  static void drop_slot(State& s, uint8_t slot);

  HugeScenario scenario_;
};

}  // namespace farside::model
