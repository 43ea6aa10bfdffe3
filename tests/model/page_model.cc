#include "page_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

State PageModel::start() const {
  State s;
  set_word(s, PageWord().with_state(PageState::kUntouched));
  for (unsigned i = 0; i < scenario_.threads.size(); i++) begin_op(s.threads[i], i);
  return s;
}

void PageModel::begin_op(Thread& t, unsigned i) const {
  uint8_t op = t.op;
  t = Thread();
  t.op = op;
  if (op == scenario_.threads[i].size()) return;
  switch (scenario_.threads[i][op]) {
    case 'k':
      return go(t, Pc::kPin);
    case 'd':
    case 's':
      t.back = Pc::kOwn;
      return go(t, Pc::kGate);
    case 'f':
      return go(t, Pc::kForkShut);
    case 'z':
      return go(t, Pc::kFree);
    default:
      return go(t, Pc::kAccess);
  }
}

void PageModel::next_op(State& s, unsigned i) const {
  s.threads[i].op++;
  begin_op(s.threads[i], i);
}

void PageModel::fault(Thread& t, bool write, Pc back) const {
  t.write = write;
  t.back = back;
  go(t, Pc::kGate);
}

// ---- The kernel ----

unsigned PageModel::references(const State& s, uint8_t frame) {
  unsigned count = (s.here.frame == frame) + (s.child.frame == frame);
  for (const EvictorState& e : s.evictors) count += e.pipe == frame;
  return count;
}

Value PageModel::value_in_child(const State& s) {
  if (s.child.present()) return s.frames[s.child.frame];
  return PageWord(s.child_word).is(PageState::kFar) ? s.child_far : kZeroPage;
}

uint8_t PageModel::new_frame(State& s, Value content) {
  for (uint8_t f = 0; f < State::kFrames; f++) {
    if (references(s, f) > 0) continue;
    s.frames[f] = content;
    return f;
  }
  return kNoFrame;  // impossible: there are more frames than references
}

// A store through a mapping, by the program or in a system call. value nullptr: a store that changes nothing.
PageModel::Store PageModel::store(State& s, Mapping& m, const Value* value, bool checks_protection) {
  if (!m.present()) return Store::kFaults;
  if (m.write_protected && checks_protection) return Store::kFaults;
  if (!m.exclusive && references(s, m.frame) > 1) {  // copy-on-write
    Value content = s.frames[m.frame];
    m.frame = new_frame(s, content);
  }
  m.exclusive = 1;
  if (value) s.frames[m.frame] = *value;
  return Store::kDone;
}

// ---- Threads ----

bool PageModel::thread_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  if (t.pc == Pc::kDone) return false;
  if (t.pc == Pc::kSealed) {  // the program gets SIGSEGV; here it retries when the page is unsealed
    if (word_of(s).has(PageWord::kSealed)) return false;
    go(t, Pc::kAccess);
    return true;
  }
  if (t.pc == Pc::kAccess) {
    if (s.freed) return false;
    bool write = scenario_.threads[i][t.op] == 'w';
    Value value = value_of(s, i);
    if (write ? store(s, s.here, &value, true) == Store::kFaults : !s.here.present()) {
      fault(t, write, Pc::kAccess);
      return true;
    }
    if (write) s.truth = value;
    else if (s.frames[s.here.frame] != s.truth) *violation = "a read returned an old value";
    next_op(s, i);
    return true;
  }
  if (t.pc >= Pc::kForkShut) return fork_step(s, i, violation);
  if (t.pc >= Pc::kOwn) return range_step(s, i, violation);
  if (t.pc >= Pc::kPin) return pin_step(s, i, violation);
  return fault_step(s, i, violation);
}

// The fault path: resolve, fault_in and upgrade; Policy::insert.
bool PageModel::fault_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  PageWord w = word_of(s);
  switch (t.pc) {
    case Pc::kGate:
      if (s.gate_owner != 0 && s.gate_owner != i + 1 && !broken(Broken::kNoGateAtFork)) return false;
      if (s.freed && t.back == Pc::kOwn && !frees(i, t)) return false;
      t.inside = 1;
      go(t, t.back == Pc::kOwn || t.back == Pc::kCommitOwn ? t.back : Pc::kLoad);
      return true;
    case Pc::kLoad:
      t.seen = s.word;
      if (is_owned(w)) {
        go(t, Pc::kWait);
      } else if (w.is(PageState::kUnmapped)) {
        go(t, Pc::kLeave);  // an error of the program; here it accesses the page when it is allocated again
      } else if (w.is(PageState::kNear)) {
        go(t, !t.write || w.writable() ? Pc::kLeave : Pc::kUpgrade);
      } else if (w.has(PageWord::kSealed)) {
        t.back = Pc::kSealed;
        go(t, Pc::kLeave);
      } else {
        go(t, Pc::kTake);
      }
      return true;
    case Pc::kWait:
      if (is_owned(w)) return false;
      go(t, Pc::kLoad);
      return true;
    case Pc::kLeave:
      t.inside = 0;
      t.write = 0;
      t.seen = 0;
      if (t.back == Pc::kDone) next_op(s, i);
      else go(t, t.back);
      return true;
    case Pc::kUpgrade:
    case Pc::kUnprotect:
    case Pc::kTouch:
    case Pc::kUpgraded:
      return upgrade_step(s, t, violation);
    default:
      return fetch_step(s, t);
  }
}

// FaultPath::fault_in: takes a frame, claims the page, fetches, maps and publishes it.
bool PageModel::fetch_step(State& s, Thread& t) const {
  PageWord w = word_of(s);
  switch (t.pc) {
    case Pc::kTake:
      if (s.used >= scenario_.frames && !s.pausing) return false;
      s.used++;
      t.frames = 1;
      go(t, Pc::kClaim);
      return true;
    case Pc::kClaim:
      if (s.word != t.seen) {
        go(t, Pc::kGiveBack);
        return true;
      }
      set_word(s, w.with_state(PageState::kFetching));
      go(t, Pc::kFetch);
      return true;
    case Pc::kGiveBack:
      s.used--;
      t.frames = 0;
      go(t, Pc::kLoad);
      return true;
    case Pc::kFetch:
      t.content = PageWord(t.seen).is(PageState::kFar) ? s.far : kZeroPage;
      go(t, Pc::kMap);
      return true;
    case Pc::kMap:  // UFFDIO_COPY does not replace a present page
      if (!s.here.present()) s.here = {new_frame(s, t.content), static_cast<uint8_t>(!t.write), 1};
      t.content = 0;
      go(t, Pc::kPublish);
      return true;
    case Pc::kPublish:
      set_word(s, w.with_state(PageState::kNear).with(t.write ? PageWord::kDirty : 0));
      t.frames = 0;
      go(t, Pc::kInsert);
      return true;
    case Pc::kInsert:
      set_word(s, w.with(PageWord::kQueued));
      go(t, w.has(PageWord::kQueued) ? Pc::kLeave : Pc::kPush);
      return true;
    case Pc::kPush:
      s.queue++;
      go(t, Pc::kLeave);
      return true;
    default:
      return false;
  }
}

// FaultPath::upgrade: lifts the write protection.
bool PageModel::upgrade_step(State& s, Thread& t, const char** violation) const {
  PageWord w = word_of(s);
  switch (t.pc) {
    case Pc::kUpgrade:
      if (s.word != t.seen) {
        go(t, Pc::kLoad);
        return true;
      }
      w = w.with(PageWord::kDirty).without(PageWord::kCow);
      set_word(s, broken(Broken::kNoUpgradingBit) ? w : w.with(PageWord::kUpgrading));
      go(t, Pc::kUnprotect);
      return true;
    case Pc::kUnprotect:
      s.here.write_protected = 0;
      go(t, broken(Broken::kNoUpgradingBit) || broken(Broken::kNoCopyInUpgrade) ? Pc::kUpgraded : Pc::kTouch);
      return true;
    case Pc::kTouch:
      if (store(s, s.here, nullptr, true) == Store::kFaults) *violation = "a fault inside the fault path";
      go(t, Pc::kUpgraded);
      return true;
    case Pc::kUpgraded:
      set_word(s, w.without(PageWord::kUpgrading));
      go(t, Pc::kLeave);
      return true;
    default:
      return false;
  }
}

// RangeOps::pin_one, the system call, RangeOps::unpin.
bool PageModel::pin_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  PageWord w = word_of(s), seen(t.seen);
  switch (t.pc) {
    case Pc::kPin:
      t.seen = s.word;
      go(t, Pc::kPinGate);
      return true;
    case Pc::kPinGate: {
      if (s.gate_owner != 0 && s.gate_owner != i + 1) return false;
      t.inside = 1;
      bool ready = seen.is(PageState::kNear) && !seen.has(PageWord::kUpgrading) && seen.writable();
      t.write = 1;
      t.back = Pc::kPin;
      go(t, ready ? Pc::kPinCount : Pc::kLoad);
      return true;
    }
    case Pc::kPinCount:
      if (s.word == t.seen) {
        set_word(s, PageWord(w.bits() + PageWord::kPinOne));
        t.back = Pc::kKernelWrite;
      }
      go(t, Pc::kLeave);
      return true;
    case Pc::kKernelWrite: {
      Value value = value_of(s, i);
      if (store(s, s.here, &value, true) == Store::kFaults) *violation = "a system call got EFAULT on a pinned page";
      s.truth = value;
      go(t, Pc::kUnpin);
      return true;
    }
    case Pc::kUnpin:
      set_word(s, PageWord(w.bits() - PageWord::kPinOne));
      next_op(s, i);
      return true;
    default:
      return false;
  }
}

// ---- The child ----

// The child writes once to its inherited page. Its own pager is in another process and is not modelled.
bool PageModel::child_step(State& s) const {
  if (!s.forked || s.child_wrote || !s.child.present()) return false;
  Value value = 254;
  store(s, s.child, &value, false);
  s.child_truth = value;
  s.child_wrote = 1;
  return true;
}

bool PageModel::step(State& s, unsigned actor, const char** violation) const {
  bool moved;
  if (actor < State::kThreads) {
    moved = actor < scenario_.threads.size() && thread_step(s, actor, violation);
  } else if (actor < State::kThreads + 2 * State::kEvictors) {
    unsigned k = actor - State::kThreads;
    moved = k / 2 < scenario_.evictors && evictor_step(s, k / 2, k % 2 == 1);
  } else if (actor == kActors - 2) {
    moved = child_step(s);
  } else {
    moved = s.discards > 0;  // the network delivers
    if (moved) {
      s.discards--;
      s.far = kForgotten;
    }
  }
  for (uint8_t f = 0; moved && f < State::kFrames; f++) {
    if (references(s, f) == 0) s.frames[f] = 0;  // so that equal states have equal bytes
  }
  return moved;
}

// ---- Invariants ----

const char* PageModel::check(const State& s) const {
  PageWord w = word_of(s);
  if (!w.is_valid()) return "an impossible page word";
  unsigned counted = w.is(PageState::kNear);
  for (const Thread& t : s.threads) counted += t.frames;
  for (const EvictorState& e : s.evictors) counted += e.frames;
  if (counted != s.used) return "a frame was leaked or counted twice";
  if (s.used > scenario_.frames && s.pausing == 0 && !s.forked) return "the budget was exceeded";
  if (!s.forked) return nullptr;
  return value_in_child(s) == s.child_truth ? nullptr : "the child does not see the memory as it was at the fork";
}

bool PageModel::done(const State& s) const {
  for (const Thread& t : s.threads) {
    if (t.pc != Pc::kDone) return false;
  }
  for (const EvictorState& e : s.evictors) {
    if (e.pc != EvictorPc::kIdle) return false;
  }
  return s.discards == 0;
}

const char* PageModel::check_done(const State& s) const {
  PageWord w = word_of(s);
  Value now = s.here.present() ? s.frames[s.here.frame] : w.is(PageState::kFar) ? s.far : kZeroPage;
  if (now != s.truth) return "a write was lost";
  if (w.is(PageState::kNear) != s.here.present()) return "the word and the kernel's mapping disagree";
  if (w.is(PageState::kNear) && s.queue == 0) return "a near page is in no queue and can never be evicted";
  if (w.has(PageWord::kQueued) != (s.queue > 0) || s.queue > 1) return "the queued bit and the queue disagree";
  return w.pins() == 0 ? nullptr : "a page stayed pinned";
}

std::string PageModel::describe(const State& s, unsigned actor) const {
  auto number = [](auto v) { return std::to_string(static_cast<unsigned>(v)); };
  std::string text;
  if (actor < State::kThreads) text = "thread " + number(actor) + " to pc " + number(s.threads[actor].pc);
  else if (actor < State::kThreads + 2 * State::kEvictors)
    text = "evictor " + number((actor - State::kThreads) / 2) + " to pc " +
           number(s.evictors[(actor - State::kThreads) / 2].pc);
  else text = actor == kActors - 2 ? "child writes" : "network delivers";
  PageWord w = word_of(s);
  return text + ": state " + number(w.state()) + (w.has(PageWord::kDirty) ? " dirty" : "") +
         (w.has(PageWord::kStored) ? " stored" : "") + (w.has(PageWord::kCow) ? " cow" : "") +
         (w.has(PageWord::kUpgrading) ? " upgrading" : "") + ", " + (s.here.present() ? "mapped" : "absent") +
         (s.here.write_protected ? " protected" : "") + ", truth " + number(s.truth) + ", far " + number(s.far) +
         ", queue " + number(s.queue) + ", frames " + number(s.used);
}

}  // namespace farside::model
