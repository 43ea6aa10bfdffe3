// The calls on ranges of the page model, RangeOps: discard, free and allocate again, seal; and forks.
#include "page_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

// RangeOps::own records in the owner field that the page had a frame, and whether it keeps it.
constexpr uint16_t kHeld = 1, kKept = 2;

static bool is_freed(PageWord w) { return w.is(PageState::kNear) && w.has(PageWord::kFreed); }

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

}  // namespace farside::model
