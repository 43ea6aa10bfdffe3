#include "objects/object_space.h"

#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "fiber/wait.h"

namespace farside::objects {
namespace {

__attribute__((tls_model("initial-exec"))) thread_local ThreadLogs* t_logs = nullptr;

}  // namespace

void ObjectSpace::Busy::enter(ObjectSpace& space, ScopeRecord& scopes) {
  for (;;) {
    scopes.busy.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the forker's membarrier makes it a fence
    if (!space.forking_.load(std::memory_order_acquire) || space.forker_ == &scopes) return;
    scopes.busy.store(false, std::memory_order_release);
    uint32_t seen = space.forked_.value();
    if (space.forking_.load(std::memory_order_acquire)) space.forked_.wait(seen, 1000000);
  }
}

ObjectSpace::ObjectSpace(pager::Pager& pager, Paths paths, double page_share, Epochs& epochs)
    : pager_(pager),
      selector_(paths, page_share),
      table_(pager.space().base(), pager.space().bytes()),
      structures_(pager, table_),
      epochs_(epochs) {
  if (!table_) die("cannot reserve addresses for the table of segments; lower --tune space");
  farside_object_view = {table_.access_bits(), ~uint64_t{63}};
}

// ---- What programs call ----

int ObjectSpace::make(uint64_t* owner, farside_object_type* type, unsigned options, void** object) {
  Busy busy(*this);
  unsigned number = number_of(*type);
  unsigned structure = options >> 8;
  if (type->alignment > kCacheLine || number > kMaxTypes || structure >= structures_.count()) return -EINVAL;
  if (is_forbidden(structure, owner)) return -EINVAL;
  if (type->bytes > kLargestObject) return make_huge(owner, *type, object);
  PtrWord word;
  bool used_once = (options & FARSIDE_OBJECT_NON_TEMPORAL) != 0;
  const ScopeRecord& scopes = Epochs::here();
  bool restarts = (options & FARSIDE_OBJECT_OWN_SCOPE) != 0 && scopes.depth == 1 && scopes.held == 0;
  LogKind kind = used_once ? LogKind::kUsedOnce : LogKind::kMade;
  if (!place_or_wait({kind, structure, type->bytes, type->alignment, true, restarts}, &word)) return -ENOMEM;
  write_header(word, owner, Header::kind(number, type->alignment));
  mark_live(word);
  count(Tally::kObjects, 1);
  count(Tally::kBytes, word.bytes());
  store_owner(owner, word);
  *object = reinterpret_cast<void*>(word.address());
  return 0;
}

void ObjectSpace::destroy(uint64_t* owner) {
  Scope scope;
  Busy busy(*this);
  for (;;) {
    PtrWord word = load_owner(owner);
    if (word.is_null()) return;
    if (table_.of(word.address()).word().state() == SegmentState::kHuge) return destroy_huge(owner, word);
    if (HandledObject* mine = word.is_moving() ? handled_here(owner) : nullptr) return destroy_handled(*mine);
    bool done = change_owned(owner, word, [&] {
      store_owner(owner, PtrWord());
      mark_dead(word);
      count(Tally::kObjects, -uint64_t{1});
      count(Tally::kBytes, -word.bytes());
    });
    if (done) return;
  }
}

void ObjectSpace::move(uint64_t* to, uint64_t* from) {
  Scope scope;
  Busy busy(*this);
  for (;;) {
    PtrWord word = load_owner(from);
    auto pass_on = [&] {
      store_owner(to, word);
      store_owner(from, PtrWord());
      if (word.units() > 0) change_header(word, to);
    };
    if (word.is_null()) return store_owner(to, word);
    if (table_.of(word.address()).word().state() == SegmentState::kHuge) return pass_on();
    if (HandledObject* mine = word.is_moving() ? handled_here(from) : nullptr) return move_handled(*mine, to);
    if (change_owned(from, word, pass_on)) return;
  }
}

void* ObjectSpace::deref(uint64_t* owner, farside_object_type* type, unsigned options) {
  Busy busy(*this);
  bool fetches = (options & FARSIDE_OBJECT_UNFETCHED) == 0;
  for (;;) {
    PtrWord word = load_owner(owner);
    if (word.is_null()) return nullptr;
    if (word.is_moving()) {
      if (handled_here(owner)) return reinterpret_cast<void*>(word.address());
      wait_while_moving(owner);
      continue;
    }
    PageIndex page = table_.index_of(word.address());
    Segment& segment = table_[page];
    auto* address = reinterpret_cast<void*>(word.address());
    switch (segment.word().state()) {
      case SegmentState::kOpen:
        return fetches ? use(word, segment, options) : address;
      case SegmentState::kHuge:
        return fetches ? use_huge(word, segment, options) : address;
      case SegmentState::kClosed:
        if (!hold(segment, page)) break;
        [[fallthrough]];
      case SegmentState::kClosing:
        if (fetches) fault_in(word, word.bytes(), options);
        return address;
      case SegmentState::kEmptying:
        if (Epochs::here().stopped >> segment.structure & 1) {  // its pointers end before moves begin
          if (fetches) fault_in(word, word.bytes(), options);
          return address;
        }
        take(owner, word, *type, (options & FARSIDE_OBJECT_NON_TEMPORAL) != 0);
        break;
      case SegmentState::kNone:
      case SegmentState::kDead:
        if (load_owner(owner) == word)
          die("a far pointer refers to no object (word {:#x}): the object was destroyed before, or the pointer's bytes "
              "were copied",
              word.bits());
    }
  }
}

// Requests pages and does not wait for them. Objects in emptying segments are moved now, in one request (phase 5).
void ObjectSpace::prefetch(uint64_t* owners, size_t count, farside_object_type& type) {
  Scope scope;
  Busy busy(*this);
  MovedBatch batch;
  unsigned kind = Header::kind(number_of(type), type.alignment);
  for (size_t i = 0; i < count; i++) {
    PtrWord word = load_owner(owners + i);
    if (word.is_null() || word.is_moving() || !table_.contains(word.address())) continue;
    SegmentState state = table_.of(word.address()).word().state();
    bool far = pager_.table().word(word.address()).is(pager::PageState::kFar);
    if (!far) continue;
    if (state != SegmentState::kEmptying) read_ahead(word);
    else if (begin_move(owners + i, word, false)) batch.add({owners + i, word, kind, nullptr, nullptr});
    if (batch.is_full()) take_marked(batch);
  }
  take_marked(batch);
}

void ObjectSpace::read_ahead(PtrWord word) {
  size_t huge = table_.of(word.address()).live[0].load(std::memory_order_relaxed);
  pager_.paging().hint({.address = word.address(), .bytes = word.units() == 0 ? huge : 1, .wait = false});
}

// ---- Access ----

// Phase 1. If the page is evicted before the access, the access faults and the page is fetched. The segment may be
// closing by now; that does no harm, since the evacuator waits for this scope before it clears the access bits.
void* ObjectSpace::use(PtrWord word, Segment& segment, unsigned options) {
  fault_in(word, word.bytes(), options);
  PageIndex page = table_.index_of(word.address());
  clock_.watch(segment, page);
  uint64_t lines = lines_of(word.address(), word.bytes());
  lines |= table_.taken_bits(page).exchange(0, std::memory_order_relaxed);
  lines |= segment.read_bits.fetch_or(lines, std::memory_order_acq_rel);
  if (options & FARSIDE_OBJECT_WRITE) segment.write_bits.fetch_or(lines, std::memory_order_acq_rel);
  return reinterpret_cast<void*>(word.address());
}

// The access bit of the first line stands for all of its pages.
void* ObjectSpace::use_huge(PtrWord word, Segment& segment, unsigned options) {
  fault_in(word, segment.live[0].load(std::memory_order_relaxed), options);
  segment.read_bits.fetch_or(1, std::memory_order_acq_rel);
  if (options & FARSIDE_OBJECT_WRITE) segment.write_bits.fetch_or(1, std::memory_order_acq_rel);
  return reinterpret_cast<void*>(word.address());
}

void ObjectSpace::fault_in(PtrWord word, size_t bytes, unsigned options) {
  Waiting waiting(*this);
  if (options & FARSIDE_OBJECT_NON_TEMPORAL) use_once(word.address());
  pager_.paging().hint({.address = word.address(), .bytes = bytes, .write = (options & FARSIDE_OBJECT_WRITE) != 0});
}

// Of the pages that a thread accesses with the non-temporal option, the previous one is evicted next.
void ObjectSpace::use_once(uint64_t address) {
  ThreadLogs& mine = thread_logs();
  PageIndex page = table_.index_of(address);
  if (mine.last_used_once == page) return;
  if (mine.last_used_once != SegmentStack::kNone) pager_.paging().evict_first(table_.address_of(mine.last_used_once));
  mine.last_used_once = page;
}

// Phase 3: holds a closed segment, so that it is not emptied before the caller's outermost scope ends. False: the state
// has changed; try again.
bool ObjectSpace::hold(Segment& segment, PageIndex page) {
  ScopeRecord& scopes = Epochs::here();
  if (scopes.holds(page)) return true;
  if (scopes.held == ScopeRecord::kMaxHeld) {
    segment.change(SegmentState::kClosed, SegmentState::kOpen);
    return false;
  }
  SegmentWord now = segment.word();
  while (now.state() == SegmentState::kClosed) {
    uint32_t bits = now.bits();
    if (segment.state.compare_exchange_weak(bits, bits + SegmentWord::kHolder, std::memory_order_seq_cst)) {
      scopes.held_pages[scopes.held++] = page;
      return true;
    }
    now = SegmentWord(bits);
  }
  return false;
}

void ObjectSpace::release_held(ScopeRecord& scopes) {
  FARSIDE_CHECK(scopes.held <= ScopeRecord::kMaxHeld);
  while (scopes.held > 0) {
    Segment& segment = table_[scopes.held_pages[--scopes.held]];
    SegmentWord before(segment.state.fetch_sub(SegmentWord::kHolder, std::memory_order_seq_cst));
    FARSIDE_CHECK(before.holders() > 0);
  }
}

void ObjectSpace::wait_while_moving(const uint64_t* owner) {
  Waiting waiting(*this);
  for (unsigned spins = 0; load_owner(owner).is_moving(); spins++) {
    if (fibers::in_fiber()) farside_fiber_yield();
    else if (spins < 1000) cpu_relax();
    else os::sched_yield();
  }
}

farside_object_stats ObjectSpace::stats() {
  return {sum(Tally::kObjects), sum(Tally::kBytes), structures_.segments(), sum(Tally::kObjectPath),
          sum(Tally::kTaken),   sum(Tally::kMoved), sum(Tally::kFreed)};
}

// Adds to a counter of the calling thread, which alone changes it.
void ObjectSpace::count(Tally tally, uint64_t n) {
  std::atomic<uint64_t>& mine = thread_logs().tallies[static_cast<size_t>(tally)];
  mine.store(mine.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

uint64_t ObjectSpace::sum(Tally tally) const {
  uint64_t all = 0;
  for (ThreadLogs* l = all_logs_.load(std::memory_order_acquire); l; l = l->next)
    all += l->tallies[static_cast<size_t>(tally)].load(std::memory_order_relaxed);
  return all;
}

// The number of a type with owners inside, assigned at its first use; 0 for types without; more than kMaxTypes: too
// many types.
unsigned ObjectSpace::number_of(farside_object_type& type) {
  if (!type.visit) return 0;
  uint32_t known = __atomic_load_n(&type.id, __ATOMIC_ACQUIRE);
  if (known != 0) return known;
  LockGuard guard(types_mutex_);
  for (unsigned i = 1; i <= kMaxTypes; i++) {
    farside_object_type* other = types_[i].load(std::memory_order_relaxed);
    if (other && other->visit != type.visit) continue;
    if (!other) types_[i].store(&type, std::memory_order_release);
    __atomic_store_n(&type.id, i, __ATOMIC_RELEASE);
    return i;
  }
  return kMaxTypes + 1;
}

// ---- Threads and forks ----

LogSet& ObjectSpace::logs(unsigned structure) {
  std::unique_ptr<LogSet>& set = thread_logs().sets[structure];
  if (!set) set = std::make_unique<LogSet>(structure);
  return *set;
}

ObjectLog& ObjectSpace::log_of(LogKind kind, unsigned structure) {
  LogSet& mine = logs(structure);
  return kind == LogKind::kMade ? mine.made : (kind == LogKind::kTaken ? mine.taken_in : mine.used_once);
}

ThreadLogs& ObjectSpace::thread_logs() {
  if (t_logs) return *t_logs;
  NoSwitch no_switch;
  for (ThreadLogs* l = all_logs_.load(std::memory_order_acquire); l; l = l->next) {
    bool free = false;
    if (l->taken.compare_exchange_strong(free, true)) return *(t_logs = l);
  }
  auto* fresh = new ThreadLogs();
  fresh->next = all_logs_.load(std::memory_order_relaxed);
  while (!all_logs_.compare_exchange_weak(fresh->next, fresh, std::memory_order_acq_rel)) {}
  return *(t_logs = fresh);
}

// Another thread may continue with the logs.
void ObjectSpace::detach_thread() {
  if (t_logs) t_logs->taken.store(false, std::memory_order_release);
  t_logs = nullptr;
  if (!farside_scopes_here) return;
  permit_moves(std::exchange(Epochs::here().stopped, 0));
  Epochs::detach(&Epochs::here());
  farside_scopes_here = nullptr;
}

void ObjectSpace::before_fork() {
  forker_ = farside_scopes_here ? &Epochs::here() : nullptr;
  forking_.store(true, std::memory_order_seq_cst);
  epochs_.wait_for_others(forker_);
  structures_.lock();
  types_mutex_.lock();
}

void ObjectSpace::after_fork() {
  types_mutex_.unlock();
  structures_.unlock();
  forking_.store(false, std::memory_order_seq_cst);
  forked_.wake_all();
}

void ObjectSpace::reset_in_child() {
  forked_.reset_in_child();
  epochs_.reset_in_child(forker_);
  structures_.reset_in_child(forker_ ? forker_->stopped : 0);
  for (ThreadLogs* l = all_logs_.load(); l; l = l->next) {
    if (l != t_logs) l->taken.store(false);
  }
}

}  // namespace farside::objects
