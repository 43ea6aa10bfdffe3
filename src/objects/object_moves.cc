// The part of ObjectSpace that moves objects out of emptying segments (phase 5 of docs/internals/object_paths.md), by
// the program's threads or by the evacuator, and that maintains the headers which name the owners of objects.
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/inject.h"
#include "fiber/wait.h"
#include "objects/object_space.h"

namespace farside::objects {

// Phase 5, by a thread of the program. The mark gives this thread the object: other threads wait, the evacuator skips
// it.
void ObjectSpace::take(uint64_t* owner, PtrWord word, farside_object_type& type, bool non_temporal) {
  if (!begin_move(owner, word, true)) return;
  MovedBatch batch(non_temporal);
  batch.add({owner, word, Header::kind(number_of(type), type.alignment), nullptr, nullptr});
  take_marked(batch);
}

// Phase 5a, by a thread of the program. False: the word has changed; or, if it does not wait, a call on a memory server
// follows owners of the structure.
bool ObjectSpace::begin_move(uint64_t* owner, PtrWord word, bool waits) {
  MoveGate& moves = gate_of(word);
  if (!moves.try_begin_move()) {
    if (!waits) return false;
    wait_to_begin(moves);
  }
  if (change_owner(owner, word, word.moving())) return true;
  moves.end_move();
  return false;
}

// Until a move has begun.
void ObjectSpace::wait_to_begin(MoveGate& moves) {
  constexpr uint64_t kLookNs = 1'000'000'000;
  Waiting waiting(*this);
  while (!moves.begin_move_within(kLookNs)) {}
}

// No thread writes the objects: there are no pointers into an emptying segment, and the marks prevent new ones.
void ObjectSpace::take_marked(MovedBatch& batch) {
  if (batch.count == 0) return;
  inject::pause("objects:marked");
  read(batch);
  for (size_t i = 0; i < batch.count; i++) {
    if (place_moved(batch, i)) count(batch.objects[i].from ? Tally::kMoved : Tally::kTaken, 1);
    gate_of(batch.objects[i].word).end_move();
  }
  batch.clear();
}

// A thread stays busy meanwhile, so that no fork happens while it has marked objects. A fiber does not.
void ObjectSpace::read(ReadBuffer& buffer) {
  buffer.make_room();
  std::optional<Waiting> waiting;
  if (fibers::in_fiber()) waiting.emplace(*this);
  pager_.paging().read_subpages({buffer.reads, buffer.count});
}

// Places and publishes one object. False: there is no room, and it stays where it is.
bool ObjectSpace::place_moved(MovedBatch& batch, size_t i) {
  const MovedBatch::Object& o = batch.objects[i];
  FARSIDE_DCHECK(load_owner(o.owner).is_moving());
  unsigned structure = table_.of(o.word.address()).structure.load(std::memory_order_relaxed);
  size_t bytes = o.word.bytes(), alignment = Header::alignment(o.kind);
  PtrWord to;
  if (o.from && !place(*o.log, bytes, alignment, false, &to)) {
    store_owner(o.owner, o.word);
    o.from->busy = true;
    return false;
  }
  LogKind kind = batch.used_once ? LogKind::kUsedOnce : LogKind::kTaken;
  if (!o.from && !place_or_wait({kind, structure, bytes, alignment, false}, &to))
    die("far memory is full while an object is fetched; give the memory server more memory");
  memcpy(reinterpret_cast<void*>(to.address()), batch.content(i), o.word.bytes());
  publish_moved(o.owner, o.word, to, o.kind);
  return true;
}

// The content is at the new place. The new segment cannot be emptied meanwhile, since the caller is in a scope.
void ObjectSpace::publish_moved(uint64_t* owner, PtrWord from, PtrWord to, unsigned kind) {
  adopt_fields(reinterpret_cast<std::byte*>(to.address()), Header::type_of(kind));
  write_header(to, owner, kind);
  mark_live(to);
  Segment& segment = table_.of(from.address());
  NoSwitch no_switch;
  segment.lock_owners();
  FARSIDE_CHECK(segment.word().state() == SegmentState::kEmptying && load_owner(owner).is_moving());
  store_owner(owner, to);
  mark_dead(from);
  segment.unlock_owners();
}

// The object has moved, so the owners inside it have new addresses: changes the headers of the objects that they own.
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

// Phase 5, by the evacuator. Headers of emptying segments do not change (change_header), so they are read once, from
// near or far memory; only the overrides are read under the owner lock. Calls in quick succession let it in, since it
// waits for them for a moment, once; not for each segment, since a call may take long.
void ObjectSpace::evacuate(std::span<EmptiedSegment> segments) {
  Scope scope;
  Busy busy(*this);
  ReadBuffer headers;
  for (const EmptiedSegment& s : segments) add_headers(headers, s.page);
  read(headers);
  MovedBatch batch;
  uint64_t patience = 1'000'000;  // ns
  for (size_t i = 0; i < segments.size(); i++) {
    MoveGate& moves = structures_[table_[segments[i].page].structure].moves;
    if (!moves.begin_move_within(batch.count == 0 ? patience : 0)) {
      segments[i].busy = true;
      patience = 0;
      continue;
    }
    evacuate_one(segments[i], reinterpret_cast<const uint64_t*>(headers.content(i)), batch);
    moves.end_move();
  }
  take_marked(batch);
}

void ObjectSpace::add_headers(ReadBuffer& buffer, PageIndex page) {
  unsigned slots = table_[page].slots.load(std::memory_order_relaxed);
  buffer.add(reinterpret_cast<uint64_t>(table_.header_of(page, slots) + 1), slots * kHeaderBytes);
}

// headers: in descending order of slots.
void ObjectSpace::evacuate_one(EmptiedSegment& e, const uint64_t* headers, MovedBatch& batch) {
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
        gate_of(word).add_move();
        bool is_hot = (lines_of(word.address(), word.bytes()) & e.hot_lines) != 0;
        batch.add({owner, word, Header::kind(header), is_hot ? e.hot : e.cold, &e});
        if (batch.is_full()) take_marked(batch);
      }
    }
  }
}

// Phase 5a for an object that the evacuator finds by its slot. Under the owner lock the address of its owner does not
// change.
ObjectSpace::Marked ObjectSpace::mark(PageIndex page, unsigned slot, uint64_t header, uint64_t** owner, PtrWord* word) {
  Segment& segment = table_[page];
  segment.lock_owners();
  auto decide = [&] {
    if (!segment.is_live(slot)) return Marked::kGone;
    *owner = owner_overrides_.find(page, slot, segment);
    if (!*owner) *owner = Header::owner(header);
    // An owner inside an object must not move either. The scope of the caller ensures that only if the segment of that
    // object is not closed yet.
    auto at = reinterpret_cast<uint64_t>(*owner);
    if (table_.contains(at)) {
      SegmentState around = table_.of(at).word().state();
      if (around == SegmentState::kClosed || around == SegmentState::kEmptying) return Marked::kBusy;
    }
    *word = load_owner(*owner);
    if (word->is_moving() || !change_owner(*owner, *word, word->moving())) return Marked::kBusy;
    bool right = table_.index_of(word->address()) == page && word->slot() == slot;
    if (!right) die("internal error: the owner of slot {} of segment {} refers to {:#x}", slot, page, word->bits());
    return Marked::kDone;
  };
  Marked marked = decide();
  segment.unlock_owners();
  return marked;
}

// ---- Calls that follow owners ----

bool ObjectSpace::has(uint64_t structures) const {
  unsigned count = structures_.count();
  return count == Structures::kMax || structures >> count == 0;
}

// In the order of their numbers, so calls do not wait for each other in a circle: they wait only while moves are
// waiting, and these wait for the end of calls that have begun.
int ObjectSpace::stop_moves(uint64_t structures) {
  constexpr uint64_t kMaxNs = 1'000'000'000;
  if (!has(structures)) return -EINVAL;
  for (uint64_t left = structures; left != 0; left &= left - 1) {
    if (structures_[std::countr_zero(left)].moves.begin_call(kMaxNs)) continue;
    permit_moves(structures & ~left);
    return -EBUSY;
  }
  return 0;
}

void ObjectSpace::permit_moves(uint64_t structures) {
  for (uint64_t left = structures; left != 0; left &= left - 1) structures_[std::countr_zero(left)].moves.end_call();
}

// A move that has begun may wait for room, which the evacuator makes by moves in all structures: it gets to make them
// between two tries. The caller has no scope open, for which it would wait.
int ObjectSpace::stop_moves_here(uint64_t structures, uint64_t* stopped) {
  *stopped = 0;
  if (farside_scopes_here && farside_scopes_here->depth > 0) return -EDEADLK;
  if (!has(structures)) return -EINVAL;
  { Scope first; }
  uint64_t mine = Epochs::here().stopped;
  *stopped = structures & ~mine;
  while (*stopped != 0 && stop_moves(*stopped) == -EBUSY) {}
  Epochs::here().stopped = mine | structures;
  return 0;
}

void ObjectSpace::permit_moves_here(uint64_t stopped) {
  if (stopped == 0) return;
  ScopeRecord& mine = Epochs::here();
  if (mine.depth > 0 || (stopped & ~mine.stopped) != 0)
    die("moves of far objects are permitted with a scope open, or by another thread than stopped them (structures "
        "{:#x})",
        stopped);
  mine.stopped &= ~stopped;
  permit_moves(stopped);
}

ssize_t ObjectSpace::list_memory(uint64_t structures, std::span<std::span<std::byte>> out) {
  if (!has(structures)) return -EINVAL;
  size_t count = 0;
  for (uint64_t left = structures; left != 0 && count <= out.size(); left &= left - 1)
    count += structures_[std::countr_zero(left)].pool.list_runs(out.subspan(count));
  return static_cast<ssize_t>(count);
}

// ---- Headers ----

// Of a new object, whose page is near and writable as a rule.
void ObjectSpace::write_header(PtrWord word, uint64_t* owner, unsigned kind) {
  uint64_t* header = table_.header_of(table_.index_of(word.address()), word.slot());
  __atomic_store_n(header, Header::make(owner, word.units(), kind), __ATOMIC_RELAXED);
}

// By an override if the page is far or clean, where writing would fetch or dirty it, and in an emptying segment, where
// the evacuator may have read the header.
void ObjectSpace::change_header(PtrWord word, uint64_t* owner) {
  PageIndex page = table_.index_of(word.address());
  bool emptying = table_[page].word().state() == SegmentState::kEmptying;
  if (emptying || !pager_.table().word(word.address()).writable())
    return owner_overrides_.put(page, word.slot(), owner, table_[page]);
  uint64_t* header = table_.header_of(page, word.slot());
  unsigned kind = Header::kind(__atomic_load_n(header, __ATOMIC_RELAXED));
  __atomic_store_n(header, Header::make(owner, word.units(), kind), __ATOMIC_RELAXED);
  owner_overrides_.remove(page, word.slot(), table_[page]);
}

}  // namespace farside::objects
