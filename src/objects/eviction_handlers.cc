// The part of ObjectSpace that calls the eviction handlers of data structures, and what a handler may do with the
// object for which it is called. docs/internals/object_paths.md, "Eviction handlers".
#include <utility>

#include "base/inject.h"
#include "objects/object_space.h"

namespace farside::objects {

int ObjectSpace::set_handler(unsigned structure, farside_eviction_handler* function, void* context) {
  Scope scope;
  Busy busy(*this);
  return structures_.set_handler(structure, function, context);
}

// Calls the handler for the objects of an emptying segment, except those that it has permitted to leave. True: all may
// leave. The thread stays busy, so no fork happens while an object is marked.
bool ObjectSpace::call_handler(PageIndex page, SlotSet& permitted) {
  Scope scope;
  Busy busy(*this);
  Segment& segment = table_[page];
  Structure& structure = structures_[segment.structure];
  if (!structure.moves.try_begin_move()) return false;
  EvictionHandler& handler = structure.handler;
  bool all = true;
  {
    LockGuard guard(handler.mutex);
    unsigned slots = handler.function ? segment.slots.load(std::memory_order_relaxed) : 0;
    for (unsigned slot = 0; slot < slots; slot++) {
      if (!segment.is_live(slot) || permitted.has(slot)) continue;
      if (may_leave(page, slot, handler)) permitted.add(slot);
      else all = false;
    }
  }
  structure.moves.end_move();
  return all;
}

// The mark makes the object the handler's: other threads wait for it, and its owner stays where it is.
bool ObjectSpace::may_leave(PageIndex page, unsigned slot, EvictionHandler& handler) {
  HandledObject object;
  uint64_t header = __atomic_load_n(table_.header_of(page, slot), __ATOMIC_RELAXED);
  Marked marked = mark(page, slot, header, &object.owner, &object.word);
  if (marked != Marked::kDone) return marked == Marked::kGone;
  std::optional<HandledObject>& handled = thread_logs().handled;
  handled = object;
  inject::pause("objects:handled");
  int result = handler.function(object.owner, reinterpret_cast<void*>(object.word.address()), object.word.bytes(),
                                handler.context);
  uint64_t* owner = handled->owner;
  handled.reset();
  if (!owner) return true;  // it has destroyed the object
  store_owner(owner, object.word);
  return result == FARSIDE_EVICTION_PERMITTED;
}

// The object for which the calling thread executes a handler, if it is this owner's.
HandledObject* ObjectSpace::handled_here(const uint64_t* owner) {
  std::optional<HandledObject>& handled = thread_logs().handled;
  return handled && handled->owner == owner ? &*handled : nullptr;
}

// By the handler of the object. The mark becomes a null owner under the owner lock, as in phase 5e.
void ObjectSpace::destroy_handled(HandledObject& object) {
  Segment& segment = table_.of(object.word.address());
  segment.lock_owners();
  FARSIDE_CHECK(load_owner(object.owner) == object.word.moving());
  store_owner(std::exchange(object.owner, nullptr), PtrWord());
  mark_dead(object.word);
  segment.unlock_owners();
  count(Tally::kObjects, -uint64_t{1});
  count(Tally::kBytes, -object.word.bytes());
}

// The same for a new owner, which has the mark now.
void ObjectSpace::move_handled(HandledObject& object, uint64_t* to) {
  Segment& segment = table_.of(object.word.address());
  segment.lock_owners();
  store_owner(to, object.word.moving());
  store_owner(std::exchange(object.owner, to), PtrWord());
  change_header(object.word, to);
  segment.unlock_owners();
}

// Whether an object of this structure may not have its owner there. An owner inside an object moves with it, so the
// handler's mark could not stay in place.
bool ObjectSpace::is_forbidden(unsigned structure, const uint64_t* owner) {
  if (!structures_[structure].handler.is_set.load(std::memory_order_relaxed)) return false;
  auto address = reinterpret_cast<uint64_t>(owner);
  return table_.contains(address) && table_.of(address).word().state() != SegmentState::kNone;
}

}  // namespace farside::objects
