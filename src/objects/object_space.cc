#include "objects/object_space.h"

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "base/inject.h"
#include "base/log.h"
#include "farside/fiber.h"
#include "fiber/wait.h"

namespace farside::objects {
namespace {

__attribute__((tls_model("initial-exec"))) thread_local ThreadLogs* t_logs = nullptr;

// No fault suspends the fiber meanwhile: another one of this worker would find the thread's log half changed.
class NoSwitch {
 public:
  NoSwitch() { farside_fiber_hold(); }
  ~NoSwitch() { farside_fiber_release(); }
  NoSwitch(const NoSwitch&) = delete;
  NoSwitch& operator=(const NoSwitch&) = delete;
};

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

// Lets forks come while the caller waits for the far side: a fiber that forks cannot wait for another one of its
// thread.
class ObjectSpace::Waiting {
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

// Pieces that are read together, and a buffer for them.
struct ObjectSpace::ReadBuffer {
  ~ReadBuffer() {
    if (buffer) near_free(buffer, room);
  }
  void add(uint64_t address, size_t size) {
    pieces[count++] = {address, static_cast<uint32_t>(size), nullptr};
    bytes += align_up(size, kCacheLine);
  }
  void make_room() {
    if (bytes > room) {
      if (buffer) near_free(buffer, room);
      buffer = static_cast<std::byte*>(near_alloc(room = bytes));
    }
    std::byte* to = buffer;
    for (size_t i = 0; i < count; i++) {
      pieces[i].to = to;
      to += align_up(pieces[i].bytes, kCacheLine);
    }
  }
  // Where the bytes are: what is not far is read in its place.
  const std::byte* content(size_t i) const {
    return pieces[i].read ? pieces[i].to : reinterpret_cast<const std::byte*>(pieces[i].address);
  }
  void clear() { count = bytes = 0; }

  size_t count = 0, bytes = 0, room = 0;
  std::byte* buffer = nullptr;
  pager::SubpageRead pieces[pager::SubpageRead::kMaxPerRequest];
};

// Objects that are taken together, all of them marked.
struct ObjectSpace::Batch : ReadBuffer {
  static constexpr size_t kMaxBytes = 16 * kKiB;
  struct Object {
    uint64_t* owner;
    PtrWord word;
    unsigned kind;   // of its header
    ObjectLog* log;  // where it goes; nullptr: the thread's own
    Emptied* from;   // whom to tell that it could not be moved; nullptr: it must
  };

  explicit Batch(bool non_temporal = false) : passing(non_temporal) {}
  bool is_full() const { return count == pager::SubpageRead::kMaxPerRequest || bytes + kPageSize > kMaxBytes; }
  void add(const Object& object) {
    objects[count] = object;
    ReadBuffer::add(object.word.address(), object.word.bytes());
  }

  const bool passing;  // of the thread's logs, that for what is used in passing
  Object objects[pager::SubpageRead::kMaxPerRequest];
};

ObjectSpace::ObjectSpace(pager::Pager& pager, Paths paths, Epochs& epochs)
    : pager_(pager),
      selector_(paths),
      table_(pager.base(), pager.space_bytes()),
      structures_(pager, table_),
      epochs_(epochs) {
  if (!table_) die("cannot reserve addresses for the table of segments; lower --space");
  farside_object_view = {table_.access_bits(), ~uint64_t{63}};
}

// ---- What programs call ----

int ObjectSpace::make(uint64_t* owner, farside_object_type* type, unsigned options, void** object) {
  Busy busy(*this);
  unsigned number = number_of(*type);
  unsigned structure = options >> 8;
  if (type->alignment > kCacheLine || number > kMaxTypes || structure >= structures_.count()) {
    return -EINVAL;
  }
  if (type->bytes > kLargestObject) return make_huge(owner, *type, object);
  PtrWord word;
  auto log = [&]() -> ObjectLog& {
    LogSet& mine = logs(structure);
    return options & FARSIDE_OBJECT_NON_TEMPORAL ? mine.passing : mine.made;
  };
  if (!place_or_wait(log, type->bytes, type->alignment, true, &word)) {
    return -ENOMEM;
  }
  write_header(word, owner, Header::kind(number, type->alignment));
  mark_live(word);
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
    bool done = change_owned(owner, word, [&] {
      store_owner(owner, PtrWord());
      mark_dead(word);
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
    if (change_owned(from, word, pass_on)) return;
  }
}

void* ObjectSpace::deref(uint64_t* owner, farside_object_type* type, unsigned options) {
  Busy busy(*this);
  for (;;) {
    PtrWord word = load_owner(owner);
    if (word.is_null()) return nullptr;
    if (word.is_moving()) {
      wait_while_moving(owner);
      continue;
    }
    PageIndex page = table_.index_of(word.address());
    Segment& segment = table_[page];
    switch (segment.word().state()) {
      case SegmentState::kOpen:
        return use(word, segment, options);
      case SegmentState::kHuge:
        return use_huge(word, segment, options);
      case SegmentState::kClosed:
        if (!hold(segment, page)) break;
        [[fallthrough]];
      case SegmentState::kClosing:
        fault_in(word, word.bytes(), options);
        return reinterpret_cast<void*>(word.address());
      case SegmentState::kEmptying:
        take(owner, word, *type, (options & FARSIDE_OBJECT_NON_TEMPORAL) != 0);
        break;
      case SegmentState::kNone:
      case SegmentState::kDead:
        if (load_owner(owner) == word)
          die("a far pointer names no object (word {:#x}): it was used after its object ended, or its bytes were "
              "copied",
              word.bits());
    }
  }
}

// Pages are asked for and not waited for. Objects that come one by one come now, in one request (phase 5).
void ObjectSpace::prefetch(uint64_t* owners, size_t count, farside_object_type& type) {
  Scope scope;
  Busy busy(*this);
  Batch batch;
  unsigned kind = Header::kind(number_of(type), type.alignment);
  for (size_t i = 0; i < count; i++) {
    PtrWord word = load_owner(owners + i);
    if (word.is_null() || word.is_moving() || !table_.contains(word.address())) continue;
    SegmentState state = table_.of(word.address()).word().state();
    bool far = pager_.word(word.address()).is(pager::PageState::kFar);
    if (!far) continue;
    if (state != SegmentState::kEmptying) ask_for(word);
    else if (change_owner(owners + i, word, word.moving())) batch.add({owners + i, word, kind, nullptr, nullptr});
    if (batch.is_full()) take_marked(batch);
  }
  take_marked(batch);
}

void ObjectSpace::ask_for(PtrWord word) {
  size_t huge = table_.of(word.address()).live[0].load(std::memory_order_relaxed);
  pager_.hint({.address = word.address(), .bytes = word.units() == 0 ? huge : 1, .wait = false});
}

farside_object_stats ObjectSpace::stats() {
  return {sum(Tally::kObjects), sum(Tally::kBytes), structures_.segments(), sum(Tally::kObjectPath),
          sum(Tally::kTaken),   sum(Tally::kMoved), sum(Tally::kFreed)};
}

// Only its own thread changes a tally.
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

// ---- Using what is there ----

// Phase 1. The licence outlives an eviction of the page at worst: then the access faults, and pages. That the segment
// may be closing by now does no harm, since closing waits for this scope before it takes the licences away.
void* ObjectSpace::use(PtrWord word, Segment& segment, unsigned options) {
  fault_in(word, word.bytes(), options);
  uint64_t lines = lines_of(word.address(), word.bytes());
  segment.read_bits.fetch_or(lines, std::memory_order_acq_rel);
  if (options & FARSIDE_OBJECT_WRITE) segment.write_bits.fetch_or(lines, std::memory_order_acq_rel);
  return reinterpret_cast<void*>(word.address());
}

// Its licence is the first line's, for all of its pages.
void* ObjectSpace::use_huge(PtrWord word, Segment& segment, unsigned options) {
  fault_in(word, segment.live[0].load(std::memory_order_relaxed), options);
  segment.read_bits.fetch_or(1, std::memory_order_acq_rel);
  if (options & FARSIDE_OBJECT_WRITE) segment.write_bits.fetch_or(1, std::memory_order_acq_rel);
  return reinterpret_cast<void*>(word.address());
}

void ObjectSpace::fault_in(PtrWord word, size_t bytes, unsigned options) {
  Waiting waiting(*this);
  if (options & FARSIDE_OBJECT_NON_TEMPORAL) pass(word.address());
  pager_.hint({.address = word.address(), .bytes = bytes, .write = (options & FARSIDE_OBJECT_WRITE) != 0});
}

// Of what a thread uses in passing, the page before leaves next.
void ObjectSpace::pass(uint64_t address) {
  ThreadLogs& mine = thread_logs();
  PageIndex page = table_.index_of(address);
  if (mine.passed == page) return;
  if (mine.passed != SegmentStack::kNone)
    pager_.evict_first(reinterpret_cast<uint64_t>(table_.address_of(mine.passed)));
  mine.passed = page;
}

// Phase 3: the segment is not emptied before the caller's outermost scope ends. False: look again.
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
  while (scopes.held > 0) {
    table_[scopes.held_pages[--scopes.held]].state.fetch_sub(SegmentWord::kHolder, std::memory_order_seq_cst);
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

// ---- Making and ending ----

bool ObjectSpace::place(ObjectLog& log, size_t bytes, size_t alignment, bool is_new, PtrWord* word) {
  if (log.place(table_, bytes, alignment, word)) return true;
  NoSwitch no_switch;
  seal(log);
  PageIndex page = structures_[log.structure()].pool.take(is_new);
  if (page == SegmentStack::kNone) return false;
  if (&log == &logs(log.structure()).passing) pass(reinterpret_cast<uint64_t>(table_.address_of(page)));
  log.begin(table_, page);
  return log.place(table_, bytes, alignment, word);
}

// Where there is no room, but garbage: waits for the evacuator to make some. Scopes that are younger than the garbage
// do not keep it from that; older ones, of other fibers of this worker, must get their turn to end. A fiber may find
// itself on another worker afterwards, so the log is chosen anew.
template <typename ChooseLog>
bool ObjectSpace::place_or_wait(ChooseLog log, size_t bytes, size_t alignment, bool is_new, PtrWord* word) {
  constexpr uint64_t kMaxNs = 10ull * 1000 * 1000 * 1000, kFiberTurnNs = 20'000, kLookNs = 500'000;
  if (place(log(), bytes, alignment, is_new, word)) return true;
  for (uint64_t start = now_ns(); is_scarce() && now_ns() - start < kMaxNs;) {
    bool in_fiber = fibers::in_fiber();
    os::nanosleep_ns(in_fiber ? kFiberTurnNs : kLookNs);
    if (in_fiber) {
      Waiting waiting(*this);
      farside_fiber_yield();
    }
    if (place(log(), bytes, alignment, is_new, word)) return true;
  }
  return false;
}

bool ObjectSpace::is_scarce() const { return structures_.segments() * kPageSize / 2 > sum(Tally::kBytes); }

void ObjectSpace::seal(ObjectLog& log) {
  if (!log.has_segment()) return;
  PageIndex page = log.end();
  table_[page].filling.store(0, std::memory_order_release);
  take_off(table_[page], page, 1);
}

// The object is there, and its maker has the licences.
void ObjectSpace::mark_live(PtrWord word) {
  Segment& segment = table_.of(word.address());
  uint64_t lines = lines_of(word.address(), word.bytes());
  segment.live[word.slot() / 64].fetch_or(uint64_t{1} << word.slot() % 64, std::memory_order_acq_rel);
  segment.read_bits.fetch_or(lines, std::memory_order_acq_rel);
  segment.write_bits.fetch_or(lines, std::memory_order_acq_rel);
  count(Tally::kObjects, 1);
  count(Tally::kBytes, word.bytes());
}

void ObjectSpace::mark_dead(PtrWord word) {
  PageIndex page = table_.index_of(word.address());
  Segment& segment = table_[page];
  owner_overrides_.remove(page, word.slot(), segment);
  segment.live[word.slot() / 64].fetch_and(~(uint64_t{1} << word.slot() % 64), std::memory_order_acq_rel);
  count(Tally::kObjects, -uint64_t{1});
  count(Tally::kBytes, -word.bytes());
  take_off(segment, page, word.units());
}

// An empty segment is dead (phase 6); one that is mostly garbage is to be emptied (phase 2).
void ObjectSpace::take_off(Segment& segment, PageIndex page, size_t units) {
  auto amount = static_cast<uint16_t>(units);
  uint16_t left = static_cast<uint16_t>(segment.live_units.fetch_sub(amount, std::memory_order_acq_rel) - amount);
  if (left == 0) {
    SegmentWord now = segment.word();
    if (now.state() == SegmentState::kEmptying) count(Tally::kObjectPath, -uint64_t{1});
    uint32_t bits = now.bits();
    while (!segment.state.compare_exchange_weak(bits, SegmentWord(bits).with(SegmentState::kDead).bits())) {}
    segment.since.store(Epochs::now(), std::memory_order_release);
  } else {
    unsigned used = segment.used_units.load(std::memory_order_relaxed);
    if (left >= used / 2 || segment.filling.load(std::memory_order_acquire) != 0) return;
    if (segment.change(SegmentState::kOpen, SegmentState::kClosing))
      segment.since.store(Epochs::now(), std::memory_order_release);
    else if (left + units < used / 2 || segment.word().state() != SegmentState::kEmptying) return;
  }
  put_in_list(page);
}

void ObjectSpace::put_in_list(PageIndex page) {
  if (table_[page].listed.exchange(1, std::memory_order_seq_cst) == 0) listed_.push(table_, page);
}

int ObjectSpace::make_huge(uint64_t* owner, const farside_object_type& type, void** object) {
  NoSwitch no_switch;
  size_t bytes = align_up(type.bytes, kPageSize);
  std::byte* memory = pager_.reserve(bytes, kPageSize);
  if (!memory || !pager_.commit(memory, bytes).ok()) {
    if (memory) pager_.release(memory, bytes);
    return -ENOMEM;
  }
  pager_.mark_objects(memory, kPageSize);
  Segment& segment = table_.of(reinterpret_cast<uint64_t>(memory));
  segment.live[0].store(bytes, std::memory_order_relaxed);
  segment.read_bits.store(0, std::memory_order_relaxed);
  segment.write_bits.store(0, std::memory_order_relaxed);
  segment.state.store(static_cast<uint32_t>(SegmentState::kHuge), std::memory_order_seq_cst);
  store_owner(owner, PtrWord::make_huge(reinterpret_cast<uint64_t>(memory)));
  *object = memory;
  return 0;
}

void ObjectSpace::destroy_huge(uint64_t* owner, PtrWord word) {
  Segment& segment = table_.of(word.address());
  auto* memory = reinterpret_cast<std::byte*>(word.address());
  size_t bytes = segment.live[0].load(std::memory_order_relaxed);
  store_owner(owner, PtrWord());
  segment.state.store(static_cast<uint32_t>(SegmentState::kNone), std::memory_order_seq_cst);
  segment.read_bits.store(0, std::memory_order_seq_cst);
  segment.write_bits.store(0, std::memory_order_seq_cst);
  NoSwitch no_switch;
  pager_.decommit(memory, bytes);
  pager_.release(memory, bytes);
}

// ---- Moving ----

// Changes what is known of an object's owner, when nobody moves the object. False: look again.
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
        die("a far pointer names no object (word {:#x}): it was ended twice, or its bytes were copied", word.bits());
      return false;
  }
}

// Phase 5, by a program's thread. The mark makes the object this thread's own: others wait, the evacuator passes by.
void ObjectSpace::take(uint64_t* owner, PtrWord word, farside_object_type& type, bool non_temporal) {
  if (!change_owner(owner, word, word.moving())) return;
  Batch batch(non_temporal);
  batch.add({owner, word, Header::kind(number_of(type), type.alignment), nullptr, nullptr});
  take_marked(batch);
}

// Nobody writes the objects: there are no pointers into an emptying segment, and the marks keep new ones away.
void ObjectSpace::take_marked(Batch& batch) {
  if (batch.count == 0) return;
  inject::pause("objects:marked");
  read(batch);
  for (size_t i = 0; i < batch.count; i++) {
    if (settle(batch, i)) count(batch.objects[i].from ? Tally::kMoved : Tally::kTaken, 1);
  }
  batch.clear();
}

// A thread stays busy meanwhile, so that no fork leaves what it has marked behind.
void ObjectSpace::read(ReadBuffer& pieces) {
  pieces.make_room();
  std::optional<Waiting> waiting;
  if (fibers::in_fiber()) waiting.emplace(*this);
  pager_.read_subpages({pieces.pieces, pieces.count});
}

// Its new place. False: there is none, and it stays where it is.
bool ObjectSpace::settle(Batch& batch, size_t i) {
  const Batch::Object& o = batch.objects[i];
  unsigned structure = table_.of(o.word.address()).structure.load(std::memory_order_relaxed);
  auto own_log = [&]() -> ObjectLog& {
    LogSet& mine = logs(structure);
    return batch.passing ? mine.passing : mine.taken_in;
  };
  size_t bytes = o.word.bytes(), alignment = Header::alignment(o.kind);
  PtrWord to;
  if (o.from && !place(*o.log, bytes, alignment, false, &to)) {
    store_owner(o.owner, o.word);
    o.from->busy = true;
    return false;
  }
  if (!o.from && !place_or_wait(own_log, bytes, alignment, false, &to))
    die("far memory is full while an object comes back to its program; give the memory server more");
  memcpy(reinterpret_cast<void*>(to.address()), batch.content(i), o.word.bytes());
  carry_over(o.owner, o.word, to, o.kind);
  return true;
}

// The content is at its new place. The new segment cannot be emptied meanwhile: the caller is in a scope.
void ObjectSpace::carry_over(uint64_t* owner, PtrWord from, PtrWord to, unsigned kind) {
  adopt_fields(reinterpret_cast<std::byte*>(to.address()), Header::type_of(kind));
  write_header(to, owner, kind);
  mark_live(to);
  Segment& segment = table_.of(from.address());
  NoSwitch no_switch;
  segment.lock_owners();
  store_owner(owner, to);
  mark_dead(from);
  segment.unlock_owners();
}

// The object has moved, so the owners inside it have new addresses.
void ObjectSpace::adopt_fields(std::byte* object, unsigned type) {
  if (type == 0) return;
  farside_visit_fields* visit = types_[type].load(std::memory_order_acquire)->visit;
  visit(
      object,
      [](uint64_t* field, void* self) {
        auto& space = *static_cast<ObjectSpace*>(self);
        for (;;) {
          PtrWord child = load_owner(field);
          if (child.is_null() || child.units() == 0) return;
          if (space.change_owned(field, child, [&] { space.change_header(child, field); })) return;
        }
      },
      this);
}

// Phase 5, by the evacuator. Headers of emptying segments do not change (change_header), so they are read once and
// wherever they are; only the notes are looked at under the owner lock.
void ObjectSpace::evacuate(std::span<Emptied> segments) {
  Scope scope;
  Busy busy(*this);
  ReadBuffer headers;
  for (const Emptied& s : segments) add_headers(headers, s.page);
  read(headers);
  Batch batch;
  for (size_t i = 0; i < segments.size(); i++) {
    evacuate_one(segments[i], reinterpret_cast<const uint64_t*>(headers.content(i)), batch);
  }
  take_marked(batch);
}

void ObjectSpace::add_headers(ReadBuffer& pieces, PageIndex page) {
  unsigned slots = table_[page].slots.load(std::memory_order_relaxed);
  pieces.add(reinterpret_cast<uint64_t>(table_.header_of(page, slots) + 1), slots * kHeaderBytes);
}

// headers: the last slot's first.
void ObjectSpace::evacuate_one(Emptied& e, const uint64_t* headers, Batch& batch) {
  Segment& segment = table_[e.page];
  unsigned slots = segment.slots.load(std::memory_order_relaxed);
  for (unsigned slot = 0; slot < slots; slot++) {
    if (!segment.is_live(slot)) continue;
    uint64_t header = __atomic_load_n(headers + (slots - 1 - slot), __ATOMIC_RELAXED);
    uint64_t* owner;
    PtrWord word;
    switch (mark(e.page, slot, header, &owner, &word)) {
      case Marked::kGone:
        break;
      case Marked::kBusy:
        e.busy = true;
        break;
      case Marked::kDone: {
        bool is_hot = (lines_of(word.address(), word.bytes()) & e.hot_lines) != 0;
        batch.add({owner, word, Header::kind(header), is_hot ? e.hot : e.cold, &e});
        if (batch.is_full()) take_marked(batch);
      }
    }
  }
}

// Phase 5a for an object that the evacuator knows by its slot: under the owner lock its owner stays where it is.
ObjectSpace::Marked ObjectSpace::mark(PageIndex page, unsigned slot, uint64_t header, uint64_t** owner, PtrWord* word) {
  Segment& segment = table_[page];
  segment.lock_owners();
  auto decide = [&] {
    if (!segment.is_live(slot)) return Marked::kGone;
    *owner = owner_overrides_.find(page, slot, segment);
    if (!*owner) *owner = Header::owner(header);
    // An owner inside an object: its place must not move either, and this scope sees to that only where the other
    // segment is not closed yet.
    auto at = reinterpret_cast<uint64_t>(*owner);
    if (table_.contains(at)) {
      SegmentState around = table_.of(at).word().state();
      if (around == SegmentState::kClosed || around == SegmentState::kEmptying) return Marked::kBusy;
    }
    *word = load_owner(*owner);
    if (word->is_moving() || !change_owner(*owner, *word, word->moving())) return Marked::kBusy;
    bool right = table_.index_of(word->address()) == page && word->slot() == slot;
    if (!right) die("internal error: the owner of slot {} of segment {} names {:#x}", slot, page, word->bits());
    return Marked::kDone;
  };
  Marked marked = decide();
  segment.unlock_owners();
  return marked;
}

// ---- What has left ----

ssize_t ObjectSpace::take_evicted(unsigned structure, std::span<uint64_t*> owners) {
  if (structure >= structures_.count()) return -EINVAL;
  Scope scope;
  Busy busy(*this);
  for (;;) {
    PageIndex pages[pager::SubpageRead::kMaxPerRequest];
    ReadBuffer headers;
    take_evicted_segments(structure, owners.size(), pages, &headers);
    if (headers.count == 0) return 0;
    read(headers);
    size_t count = 0;
    for (size_t i = 0; i < headers.count; i++) {
      count += owners_of(pages[i], reinterpret_cast<const uint64_t*>(headers.content(i)), owners.data() + count);
    }
    if (count > 0) return static_cast<ssize_t>(count);
  }
}

// Segments that are far at this moment, with `room` objects at most, and where their headers are.
void ObjectSpace::take_evicted_segments(unsigned structure, size_t room, PageIndex* pages, ReadBuffer* headers) {
  SignalsBlocked blocked;
  pager::PageFifo& fifo = structures_[structure].evicted;
  PageIndex page;
  while (headers->count < pager::SubpageRead::kMaxPerRequest && fifo.take({&page, 1}) > 0) {
    const Segment& s = table_[page];
    SegmentState state = s.word().state();
    if (state == SegmentState::kNone || state == SegmentState::kDead || s.structure != structure) continue;
    if (!pager_.word(reinterpret_cast<uint64_t>(table_.address_of(page))).is(pager::PageState::kFar)) continue;
    if (s.slots > room) return fifo.push(page);
    room -= s.slots;
    pages[headers->count] = page;
    add_headers(*headers, page);
  }
}

// Of the objects that are alive in a segment.
size_t ObjectSpace::owners_of(PageIndex page, const uint64_t* headers, uint64_t** owners) {
  Segment& segment = table_[page];
  unsigned slots = segment.slots.load(std::memory_order_relaxed);
  size_t count = 0;
  for (unsigned slot = 0; slot < slots; slot++) {
    if (!segment.is_live(slot)) continue;
    uint64_t* owner = owner_overrides_.find(page, slot, segment);
    owners[count++] = owner ? owner : Header::owner(__atomic_load_n(headers + (slots - 1 - slot), __ATOMIC_RELAXED));
  }
  return count;
}

// ---- Headers ----

// Of a new object: its page is near and writable as a rule.
void ObjectSpace::write_header(PtrWord word, uint64_t* owner, unsigned kind) {
  uint64_t* header = table_.header_of(table_.index_of(word.address()), word.slot());
  __atomic_store_n(header, Header::make(owner, word.units(), kind), __ATOMIC_RELAXED);
}

// By a note where the page is far or clean, and where the evacuator may have read the header.
void ObjectSpace::change_header(PtrWord word, uint64_t* owner) {
  PageIndex page = table_.index_of(word.address());
  bool emptying = table_[page].word().state() == SegmentState::kEmptying;
  if (emptying || !pager_.word(word.address()).writable())
    return owner_overrides_.put(page, word.slot(), owner, table_[page]);
  uint64_t* header = table_.header_of(page, word.slot());
  unsigned kind = Header::kind(__atomic_load_n(header, __ATOMIC_RELAXED));
  __atomic_store_n(header, Header::make(owner, word.units(), kind), __ATOMIC_RELAXED);
  owner_overrides_.remove(page, word.slot(), table_[page]);
}

// 0 for types without owners inside.
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

// The next thread goes on with the logs as they are.
void ObjectSpace::detach_thread() {
  if (t_logs) t_logs->taken.store(false, std::memory_order_release);
  t_logs = nullptr;
  if (farside_scopes_here) Epochs::detach(&Epochs::here());
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
  for (ThreadLogs* l = all_logs_.load(); l; l = l->next) {
    if (l != t_logs) l->taken.store(false);
  }
}

}  // namespace farside::objects
