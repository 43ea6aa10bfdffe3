#include "page_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

// RangeOps::own records in the owner field that the page had a frame, and whether it keeps it.
constexpr uint16_t kHeld = 1, kKept = 2;

bool is_freed(PageWord w) { return w.is(PageState::kNear) && w.has(PageWord::kFreed); }

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

// RangeOps::own and unseal, and the return of the frame.
bool PageModel::range_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  PageWord w = word_of(s);
  bool seal = scenario_.threads[i][t.op] == 's';
  switch (t.pc) {
    case Pc::kOwn:
      t.seen = s.word;
      if (is_owned(w)) {
        go(t, Pc::kOwnWait);
      } else if (w.is(PageState::kUnmapped)) {
        t.back = Pc::kCommit;
        go(t, Pc::kLeave);
      } else if (broken(Broken::kDropSkipsUntouched) && w.is(PageState::kUntouched)) {
        go(t, Pc::kDropUnmap);
      } else {
        go(t, Pc::kOwnTry);
      }
      return true;
    case Pc::kOwnWait:
      if (is_owned(w)) return false;
      go(t, Pc::kOwn);
      return true;
    case Pc::kOwnTry:
      if (s.word != t.seen) {
        go(t, Pc::kOwn);
        return true;
      }
      t.frames = w.is(PageState::kNear);
      t.owns = 1;
      set_word(s, w.with_state(PageState::kEvicting)
                      .with_owner(!t.frames                                      ? 0
                                  : frees(i, t) && w.writable() && w.pins() == 0 ? kKept
                                                                                 : kHeld));
      if (!seal && !t.frames) s.truth = kZeroPage;  // no thread can access it now: the discard takes effect
      go(t, seal ? (t.frames && w.has(PageWord::kDirty) ? Pc::kSealProtect : Pc::kSealUnmap) : Pc::kDropUnmap);
      return true;
    case Pc::kGiveHeld:
      s.used = static_cast<uint8_t>(s.used - t.frames);
      t.frames = 0;
      go(t, Pc::kLeave);
      return true;
    case Pc::kUnseal:
      set_word(s, w.without(PageWord::kSealed));
      next_op(s, i);
      return true;
    default:
      if (t.pc >= Pc::kSealProtect) return seal_step(s, t);
      return t.pc >= Pc::kFree ? free_step(s, i, violation) : drop_step(s, i);
  }
}

// RangeOps::drop_piece.
bool PageModel::drop_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  PageWord w = word_of(s), seen(t.seen);
  bool keeps = t.owns && w.owner() == kKept;
  switch (t.pc) {
    case Pc::kDropUnmap:  // the kernel drops the whole range, including this page if it was not near
      if (keeps) {
        go(t, seen.has(PageWord::kStored) && !broken(Broken::kFreedKeepsCopy) ? Pc::kDropFar : Pc::kDropFinish);
        return true;
      }
      if (s.here.present()) s.truth = kZeroPage;
      s.here = Mapping();
      if (!t.owns) t.back = Pc::kDone;
      go(t, !t.owns ? Pc::kLeave : seen.has(PageWord::kStored) ? Pc::kDropFar : Pc::kDropFinish);
      return true;
    case Pc::kDropFar:
      s.discards++;
      go(t, broken(Broken::kDropDoesNotWait) ? Pc::kDropFinish : Pc::kDropAck);
      return true;
    case Pc::kDropAck:
      if (s.discards > 0) return false;
      go(t, Pc::kDropFinish);
      return true;
    case Pc::kDropFinish:
      t.owns = 0;
      if (frees(i, t)) {
        constexpr uint64_t kFreed = PageWord::kDirty | PageWord::kFreed;
        PageWord kept(w.bits() & (PageWord::kPinMask | PageWord::kQueued));
        if (broken(Broken::kFreedKeepsCopy)) kept = kept.with(w.bits() & PageWord::kStored);
        set_word(s, keeps ? kept.with(kFreed).with_state(PageState::kNear) : kept.with_state(PageState::kUnmapped));
        t.back = Pc::kCommit;
        if (keeps) t.frames = 0;
        go(t, keeps ? Pc::kInsert : Pc::kGiveHeld);
        return true;
      }
      set_word(s, PageWord(w.bits() & (PageWord::kPinMask | PageWord::kQueued | PageWord::kSealed))
                      .with_state(PageState::kUntouched));
      t.back = Pc::kDone;
      go(t, Pc::kGiveHeld);
      return true;
    default:
      return false;
  }
}

// RangeOps::free has called drop_piece above; RangeOps::commit.
bool PageModel::free_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  PageWord w = word_of(s), seen(t.seen);
  switch (t.pc) {
    case Pc::kFree:
      for (unsigned k = 0; k < State::kThreads; k++) {
        if (k != i && s.threads[k].inside && s.threads[k].pc >= Pc::kOwn) return false;  // an error of the program
      }
      if (s.freed) return false;
      s.freed = 1;
      t.back = Pc::kOwn;
      go(t, Pc::kGate);
      return true;
    case Pc::kCommit:
      if (w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading)) return false;
      t.seen = s.word;
      t.back = Pc::kCommitOwn;
      go(t, w.is(PageState::kUnmapped) ? Pc::kCommitTry : is_freed(w) ? Pc::kGate : Pc::kCommitted);
      return true;
    case Pc::kCommitTry:
      go(t, s.word == t.seen ? Pc::kCommitted : Pc::kCommit);
      if (s.word == t.seen) set_word(s, w.with_state(PageState::kUntouched));
      return true;
    case Pc::kCommitOwn:
      t.back = Pc::kCommit;
      if (!seen.writable() && !broken(Broken::kCommitIgnoresCow)) {
        go(t, Pc::kOwn);
      } else if (s.word != t.seen) {
        go(t, Pc::kLeave);
      } else {
        set_word(s, w.with_state(PageState::kEvicting).with_owner(kKept));
        t.frames = 1;
        go(t, Pc::kCommitZero);
      }
      return true;
    case Pc::kCommitZero:
      if (store(s, s.here, &kZeroPage, true) == Store::kFaults) *violation = "a fault inside commit";
      go(t, Pc::kCommitFinish);
      return true;
    case Pc::kCommitFinish:
      set_word(s, PageWord(w.bits() & (PageWord::kPinMask | PageWord::kQueued | PageWord::kDirty))
                      .with_state(PageState::kNear));
      t.frames = 0;
      t.back = Pc::kCommitted;
      go(t, broken(Broken::kCommitDoesNotInsert) ? Pc::kLeave : Pc::kInsert);
      return true;
    case Pc::kCommitted:
      s.freed = 0;
      s.truth = kZeroPage;
      next_op(s, i);
      return true;
    default:
      return false;
  }
}

// RangeOps::push_out.
bool PageModel::seal_step(State& s, Thread& t) const {
  PageWord w = word_of(s);
  switch (t.pc) {
    case Pc::kSealProtect:
      if (!broken(Broken::kSealWithoutProtection)) s.here.write_protected = 1;
      go(t, Pc::kSealWrite);
      return true;
    case Pc::kSealWrite:
      s.far = s.here.present() ? s.frames[s.here.frame] : kForgotten;
      go(t, Pc::kSealUnmap);
      return true;
    case Pc::kSealUnmap:
      if (t.frames) s.here = Mapping();
      go(t, Pc::kSealFinish);
      return true;
    case Pc::kSealFinish: {
      bool stored = w.has(PageWord::kStored) || (t.frames && w.has(PageWord::kDirty));
      PageWord kept(w.bits() & (PageWord::kPinMask | PageWord::kQueued));
      kept = kept.with(PageWord::kSealed | (stored ? PageWord::kStored : 0));
      set_word(s, kept.with_state(stored ? PageState::kFar : PageState::kUntouched));
      t.back = Pc::kUnseal;
      go(t, Pc::kGiveHeld);
      return true;
    }
    default:
      return false;
  }
}

// Pager::prepare_fork and the kernel's fork.
bool PageModel::fork_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kForkShut:
      if (s.gate_owner != 0) return false;
      s.gate_owner = static_cast<uint8_t>(i + 1);
      go(t, Pc::kForkDrain);
      return true;
    case Pc::kForkDrain:
      for (unsigned k = 0; k < State::kThreads; k++) {
        if (k != i && s.threads[k].inside && !broken(Broken::kNoGateAtFork)) return false;
      }
      go(t, Pc::kForkPause);
      return true;
    case Pc::kForkPause:
      s.pausing = !broken(Broken::kNoPauseAtFork);
      go(t, Pc::kForkStill);
      return true;
    case Pc::kForkStill:
      for (const EvictorState& e : s.evictors) {
        if (s.pausing && e.pc != EvictorPc::kIdle) return false;
      }
      go(t, Pc::kForkSnapshot);
      return true;
    case Pc::kForkSnapshot:
      s.forked = 0;  // an earlier child has ended
      s.child = Mapping();
      s.child_far = s.far;
      go(t, Pc::kForkFork);
      return true;
    case Pc::kForkFork:
      s.here.exclusive = 0;
      s.child = s.here;
      s.child_word = s.word;
      s.child_truth = s.freed ? value_in_child(s) : s.truth;
      s.forked = 1;
      go(t, Pc::kForkLook);
      return true;
    default:
      return after_fork_step(s, i, violation);
  }
}

// Pager::fork_in_parent.
bool PageModel::after_fork_step(State& s, unsigned i, const char** violation) const {
  Thread& t = s.threads[i];
  PageWord w = word_of(s), seen(t.seen);
  bool dirty = seen.is(PageState::kNear) && seen.has(PageWord::kDirty);
  bool leave_writable = dirty && seen.pins() > 0 && !broken(Broken::kForkProtectsPinned);
  switch (t.pc) {
    case Pc::kForkLook:
      t.seen = s.word;
      go(t, broken(Broken::kNoProtectionAfterFork) ? Pc::kForkResume : Pc::kForkMark);
      return true;
    case Pc::kForkMark:
      if (leave_writable) {
        if (!seen.has(PageWord::kCow) && store(s, s.here, nullptr, true) == Store::kFaults)
          *violation = "a fault inside fork";
      } else if (dirty) {
        set_word(s, w.with(PageWord::kCow));
      }
      go(t, Pc::kForkProtect);
      return true;
    case Pc::kForkProtect:
      if (s.here.present() && !leave_writable) s.here.write_protected = 1;
      go(t, Pc::kForkResume);
      return true;
    case Pc::kForkResume:
      s.pausing = 0;
      go(t, Pc::kForkOpen);
      return true;
    case Pc::kForkOpen:
      s.gate_owner = 0;
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
