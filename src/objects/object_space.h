// Far objects of one process: creates, destroys, finds and moves them. What may run concurrently, and why no object is
// lost or duplicated: docs/internals/object_paths.md, whose phase numbers the code cites. The functions are in
// object_space.cc, object_lifetime.cc, object_moves.cc, evicted_owners.cc and eviction_handlers.cc.
//
// All functions may be called by any thread but not from signal handlers. They touch far memory, so they may fault; a
// fiber is not suspended while it changes its thread's log.
#pragma once
#include <pthread.h>
#include <memory>
#include <optional>

#include "base/log.h"
#include "farside/fiber.h"
#include "farside/object.h"
#include "objects/clock.h"
#include "objects/epoch.h"
#include "objects/object_batch.h"
#include "objects/object_log.h"
#include "objects/owners.h"
#include "objects/path_selector.h"
#include "objects/segment.h"
#include "objects/structures.h"
#include "pager/pager.h"

namespace farside::objects {

// While it lives, no fault suspends the fiber: another fiber of this worker would find the thread's log in the middle
// of a change.
class NoSwitch {
 public:
  NoSwitch() { farside_fiber_hold(); }
  ~NoSwitch() { farside_fiber_release(); }
  NoSwitch(const NoSwitch&) = delete;
  NoSwitch& operator=(const NoSwitch&) = delete;
};

// A thread's logs for one data structure. Created objects and objects that were fetched one by one are placed in
// different segments, so that each segment can be judged by its origin; objects that are used once (non-temporal) in a
// third kind.
struct LogSet : NearObject {
  explicit LogSet(unsigned structure)
      : made(Origin::kMade, structure),
        taken_in(Origin::kTaken, structure),
        used_once(Origin::kTaken, structure, ObjectLog::kUnused) {}
  ObjectLog made, taken_in, used_once;
};

// Counters, one of each for each thread. A sum may miss changes in progress.
enum class Tally { kObjects, kBytes, kTaken, kMoved, kFreed, kObjectPath };
inline constexpr size_t kTallies = 6;

// An object for which an eviction handler is called, marked. owner: nullptr when the handler has destroyed it.
struct HandledObject {
  uint64_t* owner;
  PtrWord word;  // without the mark
};

struct ThreadLogs : NearObject {
  std::atomic<uint64_t> tallies[kTallies] = {};
  std::unique_ptr<LogSet> sets[Structures::kMax];  // created when first needed, and kept
  std::optional<HandledObject> handled;            // while the thread executes an eviction handler
  PageIndex last_used_once = SegmentStack::kNone;  // the last page with a non-temporal access
  std::atomic<bool> taken{true};
  ThreadLogs* next = nullptr;
};

class ObjectSpace : public NearObject {
 public:
  // While it lives, a fork waits, because data is being changed. May be nested. The caller has had a scope.
  class Busy {
   public:
    explicit Busy(ObjectSpace& space) : scopes_(Epochs::here()), outer_(scopes_.busy.load(std::memory_order_relaxed)) {
      if (!outer_) enter(space, scopes_);
    }
    ~Busy() { scopes_.busy.store(outer_, std::memory_order_release); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    static void enter(ObjectSpace& space, ScopeRecord& scopes);

   private:
    ScopeRecord& scopes_;
    bool outer_;
  };

  ObjectSpace(pager::Pager& pager, Paths paths, double page_share, Epochs& epochs);

  int make(uint64_t* owner, farside_object_type* type, unsigned options, void** object);
  void destroy(uint64_t* owner);
  void move(uint64_t* to, uint64_t* from);
  void* deref(uint64_t* owner, farside_object_type* type, unsigned options);
  void prefetch(uint64_t* owners, size_t count, farside_object_type& type);

  void release_held(ScopeRecord& scopes);
  void detach_thread();
  farside_object_stats stats();
  int create(const farside_structure_options& options) { return structures_.create(options); }
  int set_handler(unsigned structure, farside_eviction_handler* function, void* context);
  ssize_t take_evicted(unsigned structure, std::span<uint64_t*> owners);

  // ---- For calls on memory servers that follow owners inside objects (docs/internals/offload.md) ----

  // structures: bit n stands for structure n. Until permit_moves(), none of their objects is moved. 0; or nothing is
  // stopped: -EINVAL (no such structure), -EBUSY (moves have not ended for a second).
  int stop_moves(uint64_t structures);
  void permit_moves(uint64_t structures);
  // The same for the calling thread or fiber, which may use the objects meanwhile, and does not give up: see
  // farside_object_stop_moves.
  int stop_moves_here(uint64_t structures, uint64_t* stopped);
  void permit_moves_here(uint64_t stopped);
  // The memory of their objects of up to kLargestObject bytes, in no order. Returns the number of runs; more than
  // out.size(): not all are listed. -EINVAL: there is no such structure.
  ssize_t list_memory(uint64_t structures, std::span<std::span<std::byte>> out);

  // ---- For the evacuator ----

  static constexpr size_t kMaxEmptied = pager::SubpageRead::kMaxPerRequest;
  // Phase 5 for all objects left in up to kMaxEmptied segments. Of far segments, only the headers and the objects are
  // read, many in one request.
  void evacuate(std::span<EmptiedSegment> segments);
  // See eviction_handlers.cc.
  bool call_handler(PageIndex page, SlotSet& permitted);
  // Lists a segment for the evacuator.
  void put_in_list(PageIndex page);
  SegmentTable& table() { return table_; }
  Structures& structures() { return structures_; }
  SegmentStack& listed() { return listed_; }
  Epochs& epochs() { return epochs_; }
  pager::Pager& pager() { return pager_; }
  PathSelector& selector() { return selector_; }
  Clock& clock() { return clock_; }
  void count(Tally tally, uint64_t n);
  uint64_t sum(Tally tally) const;
  // Segments take more than twice the bytes of live objects.
  bool is_scarce() const;
  // Ends the current segment of the log, if any.
  void seal(ObjectLog& log);

  // For a fork: keeps other threads out of all functions above until after_fork.
  // Not analyzed: between the two is a fork.
  void before_fork() NO_THREAD_SAFETY_ANALYSIS;
  void after_fork() NO_THREAD_SAFETY_ANALYSIS;
  void reset_in_child();

 private:
  // While it lives, the caller is not busy, so a fork may happen while it waits for the server: a fiber that forks
  // cannot wait for another fiber of its thread.
  class Waiting {
   public:
    explicit Waiting(ObjectSpace& space)
        : space_(space), scopes_(Epochs::here()), was_busy_(scopes_.busy.load(std::memory_order_relaxed)) {
      scopes_.busy.store(false, std::memory_order_release);
    }
    ~Waiting() {
      if (was_busy_) Busy::enter(space_, scopes_);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    ObjectSpace& space_;
    ScopeRecord& scopes_;
    bool was_busy_;
  };

  enum class Marked { kDone, kGone, kBusy };
  enum class LogKind { kMade, kTaken, kUsedOnce };  // of a LogSet

  struct Placement {
    LogKind kind;
    unsigned structure;
    size_t bytes, alignment;
    bool is_new;
    bool restarts_scope = false;  // while it waits
  };
  bool place_or_wait(const Placement& p, PtrWord* word);
  void wait_for_frames(unsigned structure);
  void pause(bool restarts_scope);
  bool place(ObjectLog& log, size_t bytes, size_t alignment, bool is_new, PtrWord* word);
  int make_huge(uint64_t* owner, const farside_object_type& type, void** object);
  void destroy_huge(uint64_t* owner, PtrWord word);
  void* use(PtrWord word, Segment& segment, unsigned options);
  void* use_huge(PtrWord word, Segment& segment, unsigned options);
  void fault_in(PtrWord word, size_t bytes, unsigned options);
  void use_once(uint64_t address);
  void read_ahead(PtrWord word);
  bool hold(Segment& segment, PageIndex page);
  void take(uint64_t* owner, PtrWord word, farside_object_type& type, bool non_temporal);
  bool has(uint64_t structures) const;
  bool begin_move(uint64_t* owner, PtrWord word, bool waits);
  void wait_to_begin(MoveGate& moves);
  // Of the object's structure.
  MoveGate& gate_of(PtrWord word) { return structures_[table_.of(word.address()).structure].moves; }
  void take_marked(MovedBatch& batch);
  void read(ReadBuffer& buffer);
  bool place_moved(MovedBatch& batch, size_t i);
  void evacuate_one(EmptiedSegment& segment, const uint64_t* headers, MovedBatch& batch);
  void take_evicted_segments(unsigned structure, size_t room, PageIndex* pages, ReadBuffer* headers);
  void add_headers(ReadBuffer& buffer, PageIndex page);
  size_t owners_of(PageIndex page, const uint64_t* headers, uint64_t** owners);
  Marked mark(PageIndex page, unsigned slot, uint64_t header, uint64_t** owner, PtrWord* word);
  bool may_leave(PageIndex page, unsigned slot, EvictionHandler& handler) REQUIRES(handler.mutex);
  HandledObject* handled_here(const uint64_t* owner);
  void destroy_handled(HandledObject& object);
  void move_handled(HandledObject& object, uint64_t* to);
  bool is_forbidden(unsigned structure, const uint64_t* owner);
  void publish_moved(uint64_t* owner, PtrWord from, PtrWord to, unsigned kind);
  void adopt_fields(std::byte* object, unsigned type);
  template <typename Change>
  bool change_owned(uint64_t* owner, PtrWord word, Change change);
  void write_header(PtrWord word, uint64_t* owner, unsigned kind);
  void change_header(PtrWord word, uint64_t* owner);
  void mark_live(PtrWord word);
  void mark_dead(PtrWord word);
  void remove_live_units(Segment& segment, PageIndex page, size_t units);
  void wait_while_moving(const uint64_t* owner);
  unsigned number_of(farside_object_type& type);
  ThreadLogs& thread_logs();
  LogSet& logs(unsigned structure);
  ObjectLog& log_of(LogKind kind, unsigned structure);

  pager::Pager& pager_;
  PathSelector selector_;
  SegmentTable table_;
  Structures structures_;
  Epochs& epochs_;
  std::atomic<bool> forking_{false};
  Event forked_;
  ScopeRecord* forker_ = nullptr;
  OwnerOverrides owner_overrides_;
  SegmentStack listed_;
  Clock clock_;
  std::atomic<ThreadLogs*> all_logs_{nullptr};
  static constexpr unsigned kMaxTypes = 127;
  Mutex types_mutex_;  // guards the assignment of type numbers
  std::atomic<farside_object_type*> types_[kMaxTypes + 1] = {};
};

// Executes change(), which changes an object's owner or the record of it, while no thread moves the object. False: the
// word has changed; try again.
template <typename Change>
bool ObjectSpace::change_owned(uint64_t* owner, PtrWord word, Change change) {
  if (word.is_moving()) {
    wait_while_moving(owner);
    return false;
  }
  PageIndex page = table_.index_of(word.address());
  Segment& segment = table_[page];
  switch (segment.word().state()) {
    case SegmentState::kClosed:
      if (!hold(segment, page)) return false;
      [[fallthrough]];
    case SegmentState::kOpen:
    case SegmentState::kClosing:
      change();
      return true;
    case SegmentState::kEmptying: {
      NoSwitch no_switch;
      segment.lock_owners();
      bool same = load_owner(owner) == word;
      if (same) change();
      segment.unlock_owners();
      return same;
    }
    default:
      if (load_owner(owner) == word)
        die("a far pointer refers to no object (word {:#x}): the object was destroyed twice, or the pointer's bytes "
            "were copied",
            word.bits());
      return false;
  }
}

}  // namespace farside::objects
