#include "object_model.h"

namespace farside::model {

ObjectModel::State ObjectModel::start() const {
  State s;
  for (unsigned i = 0; i < scenario_.threads.size(); i++) begin_op(s.threads[i], i);
  return s;
}

void ObjectModel::begin_op(Thread& t, unsigned i) const {
  uint8_t op = t.op, owner = t.owner;
  t = Thread();
  t.op = op;
  t.owner = owner;
  if (op < scenario_.threads[i].size()) t.pc = Pc::kBegin;
}

uint8_t ObjectModel::scopes(const State& s) {
  uint8_t mask = 0;
  for (unsigned i = 0; i < kThreads; i++) mask = static_cast<uint8_t>(mask | s.threads[i].in_scope << i);
  return mask;
}

void ObjectModel::end_scope(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  if (t.holds) s.holders--;
  s.waits_for = static_cast<uint8_t>(s.waits_for & ~(1u << i));
  t.op++;
  begin_op(t, i);
}

void ObjectModel::access(State& s, Thread& t, bool write, const char** wrong) const {
  uint8_t& content = t.at_new ? s.new_content : s.old_content;
  if (!t.at_new && s.segment == Segment::kReused) *wrong = "a pointer refers to a reused segment";
  if (write) content = s.expected = ++s.writes;
  else if (content != s.expected) *wrong = "a write is lost: a read sees an older one";
}

bool ObjectModel::step(State& s, unsigned actor, const char** wrong) const {
  if (actor == kEvacuator) return step_evacuator(s, wrong);
  if (actor >= scenario_.threads.size()) return false;
  return step_thread(s, actor, wrong);
}

bool ObjectModel::step_thread(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kDone:
      return false;
    case Pc::kBegin: {
      t.in_scope = 1;
      char op = letter(t, i);
      t.pc = op == 'n' ? Pc::kNeighbour : (op == 'r' || op == 'w' ? Pc::kFast : Pc::kReload);
      t.seen = s.owners[t.owner];
      return true;
    }
    case Pc::kNeighbour:  // the slow path: tests the state now
      t.pc = s.segment == Segment::kOpen ? Pc::kNeighbourSet : Pc::kEnd;
      return true;
    case Pc::kNeighbourSet:
      if (s.segment != Segment::kReused) s.access = 1;
      t.pc = Pc::kEnd;
      return true;
    case Pc::kEnd:
      end_scope(s, i);
      return true;
    case Pc::kMoveTo:
    case Pc::kMoveFrom:
    case Pc::kMoveHeader:
    case Pc::kMoveLock:
    case Pc::kMoveLocked:
      return step_move(s, t);
    case Pc::kDestroy:
    case Pc::kDestroyLock:
    case Pc::kDestroyLocked:
      return step_destroy(s, t, wrong);
    default:
      return step_deref(s, i, wrong);
  }
}

// farside_object_deref, ObjectSpace::deref, hold and take; and the steps that move and destroy have in common with
// them.
bool ObjectModel::step_deref(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  char op = letter(t, i);
  bool uses = op == 'r' || op == 'w';
  Pc act = uses ? Pc::kAccess : (op == 'm' ? Pc::kMoveTo : Pc::kDestroy);
  switch (t.pc) {
    case Pc::kFast:  // `seen` was loaded before; tests the access bit
      if (t.seen == Word::kNull) t.pc = Pc::kEnd;
      else if (t.seen == Word::kNew) t.at_new = 1, t.pc = Pc::kAccess;
      else t.pc = s.access ? Pc::kAccess : Pc::kReload;
      return true;
    case Pc::kReload:
      if (!uses || !is_broken(BrokenObjects::kNoReload)) t.seen = s.owners[t.owner];
      if (t.seen == Word::kOldMoving) return false;
      if (t.seen == Word::kNull) t.pc = Pc::kEnd;
      else if (t.seen == Word::kNew) t.at_new = 1, t.pc = act;
      else t.pc = Pc::kTestState;
      return true;
    case Pc::kTestState:
      switch (s.segment) {
        case Segment::kOpen:
          t.pc = uses ? Pc::kSetAccess : act;
          return true;
        case Segment::kClosing:
          t.pc = act;
          return true;
        case Segment::kClosed:
          t.pc = Pc::kHold;
          return true;
        case Segment::kEmptying:
          t.pc = uses ? Pc::kMark : (op == 'm' ? Pc::kMoveLock : Pc::kDestroyLock);
          return true;
        default:
          if (s.owners[t.owner] == Word::kOld) *wrong = "the owner of a live object refers to an empty segment";
          t.pc = Pc::kReload;
          return true;
      }
    case Pc::kSetAccess:
      s.access = 1;
      t.pc = Pc::kAccess;
      return true;
    case Pc::kHold:
      if (s.segment != Segment::kClosed) {
        t.pc = Pc::kReload;
        return true;
      }
      if (!t.holds) s.holders++;
      t.holds = 1;
      t.pc = act;
      return true;
    case Pc::kAccess:
      access(s, t, op == 'w', wrong);
      t.pc = Pc::kEnd;
      return true;
    default:
      return step_take(s, t);
  }
}

// ObjectSpace::take: moves the object out of the segment.
bool ObjectModel::step_take(State& s, Thread& t) const {
  switch (t.pc) {
    case Pc::kMark:
      if (is_broken(BrokenObjects::kNoMark)) {
        t.pc = Pc::kCopy;
        return true;
      }
      if (s.owners[t.owner] != Word::kOld) {
        t.pc = Pc::kReload;
        return true;
      }
      s.owners[t.owner] = Word::kOldMoving;
      t.pc = Pc::kCopy;
      return true;
    case Pc::kCopy:
      t.copy = s.old_content;
      t.pc = Pc::kLock;
      return true;
    case Pc::kLock:
      if (s.locked) return false;
      s.locked = 1;
      t.pc = Pc::kPublish;
      return true;
    case Pc::kPublish:
      s.new_content = t.copy;
      s.owners[t.owner] = Word::kNew;
      s.segment = s.segment == Segment::kReused ? s.segment : Segment::kDead;
      s.locked = 0;
      t.pc = Pc::kReload;
      return true;
    default:
      return false;
  }
}

// ObjectSpace::move, from the point where it may change the owner.
bool ObjectModel::step_move(State& s, Thread& t) const {
  uint8_t to = t.owner ^ 1u;
  switch (t.pc) {
    case Pc::kMoveTo:
      s.owners[to] = t.seen;
      t.pc = Pc::kMoveFrom;
      return true;
    case Pc::kMoveFrom:
      s.owners[t.owner] = Word::kNull;
      t.pc = Pc::kMoveHeader;
      return true;
    case Pc::kMoveHeader:
      if (t.seen == Word::kOld) s.header = to, s.owner_override = kNoOverride;
      t.owner = to;
      t.pc = Pc::kEnd;
      return true;
    case Pc::kMoveLock:
      if (is_broken(BrokenObjects::kMoveWithoutLock)) {
        t.pc = Pc::kMoveTo;
        return true;
      }
      if (s.locked) return false;
      s.locked = 1;
      t.pc = Pc::kMoveLocked;
      return true;
    case Pc::kMoveLocked:
      s.locked = 0;
      if (s.owners[t.owner] != t.seen) {
        t.pc = Pc::kReload;
        return true;
      }
      s.owners[to] = t.seen;
      s.owners[t.owner] = Word::kNull;
      (is_broken(BrokenObjects::kHeaderNoOverride) ? s.header : s.owner_override) = to;
      t.owner = to;
      t.pc = Pc::kEnd;
      return true;
    default:
      return false;
  }
}

// ObjectSpace::destroy, from the point where it may clear the owner.
bool ObjectModel::step_destroy(State& s, Thread& t, const char** wrong) const {
  switch (t.pc) {
    case Pc::kDestroyLock:
      if (s.locked) return false;
      s.locked = 1;
      t.pc = Pc::kDestroyLocked;
      return true;
    case Pc::kDestroyLocked:
      s.locked = 0;
      if (s.owners[t.owner] != t.seen) {
        t.pc = Pc::kReload;
        return true;
      }
      [[fallthrough]];
    case Pc::kDestroy:
      if (!s.alive) *wrong = "the object is destroyed twice";
      s.owners[t.owner] = Word::kNull;
      s.alive = 0;
      if (t.seen == Word::kOld) s.segment = Segment::kDead;
      t.pc = Pc::kEnd;
      return true;
    default:
      return false;
  }
}

// The path selector and the rounds of the evacuator.
bool ObjectModel::step_evacuator(State& s, const char** wrong) const {
  switch (s.evacuator) {
    case Evacuator::kClose:
      if (s.segment == Segment::kDead) {
        s.evacuator = Evacuator::kDead;
        return true;
      }
      s.segment = Segment::kClosing;
      s.waits_for = scopes(s);
      s.evacuator = Evacuator::kClearAccess;
      return true;
    case Evacuator::kClearAccess:
      if (s.waits_for != 0 && !is_broken(BrokenObjects::kNoFirstGrace)) return false;
      s.access = 0;
      if (s.segment == Segment::kClosing) s.segment = Segment::kClosed;
      s.waits_for = scopes(s);
      s.evacuator = Evacuator::kEmpty;
      return true;
    case Evacuator::kEmpty:
      if (s.waits_for != 0 && !is_broken(BrokenObjects::kNoSecondGrace)) return false;
      if (s.segment == Segment::kDead) {
        s.evacuator = Evacuator::kDead;
        return true;
      }
      if (s.holders > 0 && !is_broken(BrokenObjects::kIgnoresHolders)) return false;
      s.segment = Segment::kEmptying;
      s.evacuator = is_broken(BrokenObjects::kNoHandler) ? Evacuator::kEvict : Evacuator::kReadHeader;
      return true;
    case Evacuator::kDead:
      s.waits_for = scopes(s);
      s.evacuator = Evacuator::kReuse;
      return true;
    case Evacuator::kReuse:
      if (s.waits_for != 0 && !is_broken(BrokenObjects::kReuseAtOnce)) return false;
      s.segment = Segment::kReused;
      s.access = 1;  // for the objects that are there now
      s.old_content = 255;
      s.evacuator = Evacuator::kDone;
      return true;
    case Evacuator::kDone:
      return false;
    case Evacuator::kHandle:
    case Evacuator::kRelease:
    case Evacuator::kEvict:
    case Evacuator::kEvicted:
      return step_handler(s, wrong);
    default:
      return step_evacuate(s, wrong);
  }
}

// ObjectSpace::evacuate.
bool ObjectModel::step_evacuate(State& s, const char** wrong) const {
  switch (s.evacuator) {
    case Evacuator::kReadHeader:
      s.evacuator_header = s.header;
      s.evacuator = Evacuator::kLock;
      return true;
    case Evacuator::kLock:
      if (s.locked) return false;
      if (s.segment == Segment::kDead) {
        s.evacuator = Evacuator::kDead;
        return true;
      }
      s.locked = 1;
      s.evacuator = Evacuator::kFindOwner;
      return true;
    case Evacuator::kFindOwner:
      s.evacuator_owner = s.owner_override == kNoOverride ? s.evacuator_header : s.owner_override;
      s.evacuator = Evacuator::kMark;
      return true;
    case Evacuator::kMark: {
      Word word = s.owners[s.evacuator_owner];
      s.locked = 0;
      s.evacuator = Evacuator::kReadHeader;  // another thread is moving it: retry
      if (s.segment == Segment::kDead || word == Word::kOldMoving) return true;
      if (word != Word::kOld) *wrong = "the owner in the header has another object";
      if (!is_broken(BrokenObjects::kHandlerNoMark)) s.owners[s.evacuator_owner] = Word::kOldMoving;
      s.evacuator = scenario_.handler == Handler::kNone ? Evacuator::kCopy : Evacuator::kHandle;
      return true;
    }
    case Evacuator::kCopy:
      s.evacuator_copy = s.old_content;
      s.evacuator = Evacuator::kLockAgain;
      return true;
    case Evacuator::kLockAgain:
      if (s.locked) return false;
      s.locked = 1;
      s.evacuator = Evacuator::kPublish;
      return true;
    case Evacuator::kPublish:
      s.new_content = s.evacuator_copy;
      s.owners[s.evacuator_owner] = Word::kNew;
      s.segment = Segment::kDead;
      s.locked = 0;
      s.evacuator = Evacuator::kDead;
      return true;
    default:
      return false;
  }
}

// ObjectSpace::may_leave, and the eviction of the page after it.
bool ObjectModel::step_handler(State& s, const char** wrong) const {
  switch (s.evacuator) {
    case Evacuator::kHandle:
      if (s.old_content != s.expected) *wrong = "the eviction handler sees an older content";
      s.old_content = s.handled = s.expected = ++s.writes;
      s.evacuator = Evacuator::kRelease;
      return true;
    case Evacuator::kRelease:
      if (scenario_.handler == Handler::kDrops) {
        s.owners[s.evacuator_owner] = Word::kNull;
        s.alive = 0;
        s.segment = Segment::kDead;
      } else if (!is_broken(BrokenObjects::kHandlerNoMark)) {
        s.owners[s.evacuator_owner] = Word::kOld;
      }
      s.evacuator = Evacuator::kEvict;
      return true;
    case Evacuator::kEvict: {
      bool is_here = s.owners[0] == Word::kOld || s.owners[1] == Word::kOld;
      if (is_here && s.old_content != s.handled) *wrong = "an object leaves that its eviction handler has not seen";
      s.evacuator = Evacuator::kEvicted;
      return true;
    }
    default:
      if (s.segment != Segment::kDead) return false;  // the object stays in the far page
      s.evacuator = Evacuator::kDead;
      return true;
  }
}

// The object never exists twice, and is somewhere while it is alive.
const char* ObjectModel::check(const State& s) const {
  unsigned places = 0;
  for (Word word : s.owners) places += word != Word::kNull;
  bool moving = false;  // moving an owner takes two steps
  for (const Thread& t : s.threads) moving |= t.pc == Pc::kMoveFrom;
  if (places > 1 && !moving) return "the object has two owners";
  if (places == 0 && s.alive) return "a live object has no owner";
  return nullptr;
}

bool ObjectModel::done(const State& s) const {
  for (const Thread& t : s.threads) {
    if (t.pc != Pc::kDone) return false;
  }
  return s.evacuator == Evacuator::kDone || (s.evacuator == Evacuator::kEvicted && s.segment != Segment::kDead);
}

const char* ObjectModel::check_done(const State& s) const {
  if (!s.alive) return nullptr;
  if ((s.segment == Segment::kEmptying ? s.old_content : s.new_content) != s.expected)
    return "a write is lost: the object ends with an older one";
  return nullptr;
}

std::string ObjectModel::describe(const State& s, unsigned actor) const {
  std::string text = actor == kEvacuator ? "evacuator -> " + std::to_string(static_cast<int>(s.evacuator))
                                         : "thread " + std::to_string(actor) + " -> " +
                                               std::to_string(static_cast<int>(s.threads[actor].pc));
  return text + ", segment " + std::to_string(static_cast<int>(s.segment)) + ", holders " + std::to_string(s.holders) +
         ", access " + std::to_string(s.access) + ", owners " + std::to_string(static_cast<int>(s.owners[0])) + " " +
         std::to_string(static_cast<int>(s.owners[1])) + ", content " + std::to_string(s.old_content) + " " +
         std::to_string(s.new_content) + ", expected " + std::to_string(s.expected);
}

}  // namespace farside::model
