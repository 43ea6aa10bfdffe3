#include "move_model.h"

namespace farside::model {

void MoveModel::next(Thread& t) { t = {Pc::kStart, static_cast<uint8_t>(t.op + 1), 0, 0}; }

void MoveModel::write(State& s, unsigned page, uint8_t value) {
  s.near[page] = value;
  s.dirty = static_cast<uint8_t>(s.dirty | 1u << page);
}

void MoveModel::store(State& s, unsigned page) {
  s.far[page] = s.near[page];
  s.dirty = static_cast<uint8_t>(s.dirty & ~(1u << page));
}

bool MoveModel::step(State& s, unsigned actor, const char** wrong) const {
  if (actor >= kEvictor) {
    unsigned page = actor - kEvictor;
    if (!(s.dirty >> page & 1)) return false;
    store(s, page);
    return true;
  }
  if (actor >= kPatience) return gives_up(s, actor - kPatience);
  Thread& t = s.threads[actor];
  if (t.pc == Pc::kStart) return begin(s, actor);
  if (t.pc <= Pc::kEndMove) return step_move(s, t);
  return t.pc <= Pc::kEndCall ? step_call(s, t, wrong) : step_holder(s, t);
}

bool MoveModel::begin(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  switch (op(i, t)) {
    case 'm':
    case 'e':
      if (s.calls > 0 && !is_broken(BrokenMoves::kIgnoresCalls)) {
        s.waiting++;
        t.pc = Pc::kWait;
      } else if (is_broken(BrokenMoves::kTestsFirst)) {
        t.pc = Pc::kCount;
      } else {
        s.moving++;
        t.pc = Pc::kMark;
      }
      return true;
    case 'c':
      if (is_broken(BrokenMoves::kWritesFirst) && t.page < kPages) return store(s, t.page++), true;
      [[fallthrough]];
    case 'h':
      if (s.waiting > 0) return false;
      s.calls++;
      t.pc = op(i, t) == 'c' ? Pc::kStopMoves : Pc::kStopHere;
      return true;
    default:
      return false;
  }
}

// The end of begin_move_within, or of begin_call.
bool MoveModel::gives_up(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  if (t.pc == Pc::kWait && op(i, t) == 'e') {
    if (!is_broken(BrokenMoves::kGivesUpAnnounced)) s.waiting--;
    next(t);
    return true;
  }
  if (t.pc == Pc::kStopMoves) {
    s.calls--;
    next(t);
    return true;
  }
  return false;
}

bool MoveModel::step_move(State& s, Thread& t) const {
  switch (t.pc) {
    case Pc::kCount:
      s.moving++;
      t.pc = Pc::kMark;
      return true;
    case Pc::kWait:
      if (s.calls > 0) return false;
      if (!is_broken(BrokenMoves::kStaysAnnounced)) s.waiting--;
      s.moving++;
      t.pc = Pc::kMark;
      return true;
    case Pc::kMark:
      if (s.near[0] & kMark || s.near[0] + 1u == kPages) {
        if (!is_broken(BrokenMoves::kStaysCounted)) s.moving--;
        next(t);
        return true;
      }
      t.page = s.near[0];
      write(s, 0, t.page | kMark);
      t.pc = Pc::kCopy;
      return true;
    case Pc::kCopy:
      if (t.value == 0) return t.value = s.near[t.page], true;
      write(s, t.page + 1u, t.value);
      t.pc = Pc::kPublish;
      if (is_broken(BrokenMoves::kEndsBeforeOwner)) s.moving--;
      return true;
    case Pc::kPublish:  // the old page may have other objects at once
      write(s, 0, static_cast<uint8_t>(t.page + 1));
      write(s, t.page, 0);
      t.pc = Pc::kEndMove;
      return true;
    default:
      if (!is_broken(BrokenMoves::kEndsBeforeOwner)) s.moving--;
      next(t);
      return true;
  }
}

bool MoveModel::step_call(State& s, Thread& t, const char** wrong) const {
  switch (t.pc) {
    case Pc::kStopMoves:
      if (s.moving > 0 && !is_broken(BrokenMoves::kIgnoresMoves)) return false;
      t.pc = is_broken(BrokenMoves::kWritesFirst) ? Pc::kFollow : Pc::kStore;
      return true;
    case Pc::kStore:
      store(s, t.page++);
      if (t.page < kPages) return true;
      t.pc = Pc::kFollow;
      if (is_broken(BrokenMoves::kPermitsEarly)) s.calls--;
      return true;
    case Pc::kFollow:
      t.page = s.far[0];
      t.pc = Pc::kReadObject;
      if (t.page & kMark) *wrong = "the function finds the owner of an object that is being moved";
      return true;
    case Pc::kReadObject:
      if (s.far[t.page] == 0) *wrong = "the function does not find the object where its owner says";
      t.pc = Pc::kEndCall;
      return true;
    default:
      if (!is_broken(BrokenMoves::kPermitsEarly)) s.calls--;
      next(t);
      return true;
  }
}

bool MoveModel::step_holder(State& s, Thread& t) const {
  bool late = is_broken(BrokenMoves::kUsesLate);
  switch (t.pc) {
    case Pc::kStopHere:
      if (s.moving > 0) return false;
      t.pc = Pc::kLocate;
      return true;
    case Pc::kLocate:
      t.page = s.near[0];
      t.pc = Pc::kChange;
      if (late) s.calls--;
      return true;
    case Pc::kChange:
      write(s, t.page, ++s.truth);
      t.pc = Pc::kPermit;
      return true;
    default:
      if (!late) s.calls--;
      next(t);
      return true;
  }
}

bool MoveModel::done(const State& s) const {
  for (unsigned i = 0; i < kThreads; i++) {
    if (op(i, s.threads[i]) != 0) return false;
  }
  return true;
}

const char* MoveModel::check_done(const State& s) const {
  if (s.near[0] & kMark || s.near[s.near[0]] != s.truth) return "the object, or a change of it, is lost";
  return s.calls == 0 && s.moving == 0 && s.waiting == 0 ? nullptr : "the gate does not open again";
}

std::string MoveModel::describe(const State& s, unsigned actor) const {
  std::string text;
  if (actor >= kEvictor) {
    text = "page " + std::to_string(actor - kEvictor) + " is stored";
  } else {
    unsigned i = actor % kThreads;
    text = std::string(actor >= kPatience ? "a timeout of " : "") + "thread " + std::to_string(i) + " -> " +
           std::to_string(static_cast<int>(s.threads[i].pc));
  }
  text += ", calls " + std::to_string(s.calls) + ", moving " + std::to_string(s.moving) + ", waiting " +
          std::to_string(s.waiting) + ", near";
  for (uint8_t value : s.near) text += " " + std::to_string(value);
  text += ", far";
  for (uint8_t value : s.far) text += " " + std::to_string(value);
  return text;
}

}  // namespace farside::model
