#include "call_model.h"

#include <algorithm>

namespace farside::model {

void CallModel::next(Thread& t) {
  uint8_t op = t.op;
  t = Thread();
  t.op = static_cast<uint8_t>(op + 1);
}

// The server gets the page as it is mapped, or as its frame was before it was unmapped.
void CallModel::store(State& s) { std::copy(s.near, s.near + kThreads, s.far); }

bool CallModel::step(State& s, unsigned actor, const char** wrong) const {
  if (actor == kEvictor) return step_evictor(s);
  if (actor == kFunction) {
    if (s.function == 0) return false;
    s.far[s.function - 1] = kUndefined;
    s.function = 0;
    return true;
  }
  Thread& t = s.threads[actor];
  if (t.pc == Pc::kStart) return begin(s, actor, wrong);
  if (t.pc <= Pc::kPublished) return step_fault(s, actor);
  if (t.pc <= Pc::kUpgraded) return step_upgrade(s, t);
  if (t.pc <= Pc::kUnpin) return step_pin(s, actor);
  if (t.pc <= Pc::kLateStore) return step_read_call(s, actor, wrong);
  return step_written_call(s, actor, wrong);
}

bool CallModel::begin(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  switch (op(i, t)) {
    case 'r':
      if (!s.mapped) return t.pc = Pc::kFault, true;
      if (s.truth[i] != kUndefined && s.near[i] != s.truth[i]) *wrong = "a read returned an old value";
      next(t);
      return true;
    case 'w':
      if (!s.mapped || !s.writable) return t.write = 1, t.pc = Pc::kFault, true;
      s.near[i] = s.truth[i] = value(i, t);
      next(t);
      return true;
    case 'k':
      t.pc = Pc::kPin;
      return true;
    case 'c':
      t.pc = Pc::kTicket;
      return true;
    case 'x':
    case 'b':
      if (s.written_call != 0) return false;
      s.written_call = static_cast<uint8_t>(i + 1);
      t.pc = Pc::kOwn;
      return true;
    default:
      return false;
  }
}

// FaultPath::resolve, fault_in; PageTable::Entry.
bool CallModel::step_fault(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kFault:
      if (is_owned(s)) return false;
      if (s.word == Word::kFar) t.pc = Pc::kClaim;
      else if (t.write && !s.dirty) t.pc = Pc::kUpgrade;
      else t.pc = op(i, t) == 'k' ? Pc::kPin : Pc::kStart;
      if (is_broken(BrokenCall::kUnsettleBeforeChange) && t.pc != Pc::kStart) unsettle(s);
      return true;
    case Pc::kClaim:
      t.pc = Pc::kFault;
      if (s.word != Word::kFar) return true;
      s.word = Word::kFetching;
      t.pc = Pc::kClaimed;
      return true;
    case Pc::kClaimed:
      if (!is_broken(BrokenCall::kNoUnsettleAtClaim) && !is_broken(BrokenCall::kUnsettleBeforeChange)) unsettle(s);
      t.pc = Pc::kFetch;
      return true;
    case Pc::kFetch:
      std::copy(s.far, s.far + kThreads, t.content);
      t.pc = Pc::kMap;
      return true;
    case Pc::kMap:
      std::copy(t.content, t.content + kThreads, s.near);
      std::fill(t.content, t.content + kThreads, uint8_t{0});
      s.mapped = 1;
      s.writable = t.write;
      t.pc = Pc::kPublish;
      return true;
    case Pc::kPublish:
      s.word = Word::kNear;
      s.dirty = t.write;
      t.pc = Pc::kPublished;
      return true;
    default:
      if (t.write && !is_broken(BrokenCall::kUnsettleBeforeChange)) unsettle(s);
      t.pc = Pc::kFault;
      return true;
  }
}

bool CallModel::step_upgrade(State& s, Thread& t) const {
  switch (t.pc) {
    case Pc::kUpgrade:
      t.pc = Pc::kFault;
      if (s.word != Word::kNear || s.dirty || s.upgrading) return true;
      s.dirty = 1;
      s.upgrading = !is_broken(BrokenCall::kNoUpgradingBit);
      t.pc = Pc::kUpgrading;
      return true;
    case Pc::kUpgrading:
      if (!is_broken(BrokenCall::kNoUnsettleAtUpgrade) && !is_broken(BrokenCall::kUnsettleBeforeChange)) unsettle(s);
      t.pc = Pc::kUnprotect;
      return true;
    case Pc::kUnprotect:
      if (s.mapped) s.writable = 1;
      t.pc = Pc::kUpgraded;
      return true;
    default:
      s.upgrading = 0;
      t.pc = Pc::kFault;
      return true;
  }
}

// A pinned page stays near and writable.
bool CallModel::step_pin(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kPin:
      if (s.word != Word::kNear || s.upgrading || !s.dirty) return t.write = 1, t.pc = Pc::kFault, true;
      s.pins++;
      t.pc = Pc::kPinned;
      return true;
    case Pc::kPinned:
      if (s.mapped && s.writable) s.near[i] = value(i, t);
      s.truth[i] = value(i, t);
      t.pc = Pc::kUnpin;
      return true;
    default:
      s.pins--;
      next(t);
      return true;
  }
}

// RangeOps::WriteBack, own_dirty, store, store_and_release.
bool CallModel::step_read_call(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kTicket: {
      bool trusts = s.settled == kSettled || (is_broken(BrokenCall::kTrustTickets) && s.settled != 0);
      if (trusts) return t.pc = Pc::kCall, true;
      t.ticket = is_broken(BrokenCall::kSameTickets) ? 1 : s.next_ticket++;
      s.settled = t.ticket;
      t.pc = Pc::kScan;
      return true;
    }
    case Pc::kScan:
      if (is_owned(s)) {
        if (!is_broken(BrokenCall::kScanSkipsOwned)) return false;
        t.pc = Pc::kSettle;
        return true;
      }
      t.dirty = s.word == Word::kNear && s.dirty;
      t.pinned = t.dirty && s.pins > 0;
      t.pc = t.dirty ? Pc::kProtect : Pc::kSettle;
      if (t.dirty) s.word = Word::kEvicting;
      return true;
    case Pc::kProtect:
      if (!t.pinned && !is_broken(BrokenCall::kNoProtection)) s.writable = 0;
      t.pc = is_broken(BrokenCall::kCleanBeforeWrite) || is_broken(BrokenCall::kCallBeforeWrite) ? Pc::kRelease
                                                                                                 : Pc::kStore;
      return true;
    case Pc::kStore:
      store(s);
      t.pc = is_broken(BrokenCall::kCleanBeforeWrite) ? Pc::kSettle : Pc::kRelease;
      return true;
    case Pc::kRelease:
      s.word = Word::kNear;
      s.dirty = t.pinned && !is_broken(BrokenCall::kPinnedBecomesClean);
      t.pc = is_broken(BrokenCall::kCleanBeforeWrite) ? Pc::kStore : Pc::kSettle;
      return true;
    case Pc::kSettle: {
      bool may = !t.dirty || is_broken(BrokenCall::kSettleDirty);
      if (may && (s.settled == t.ticket || is_broken(BrokenCall::kSettleWithoutTicket))) s.settled = kSettled;
      t.pc = Pc::kCall;
      return true;
    }
    case Pc::kCall:
      if (s.truth[i] != kUndefined && s.far[i] != s.truth[i]) *wrong = "a function read an old value";
      if (t.dirty && is_broken(BrokenCall::kCallBeforeWrite)) return t.pc = Pc::kLateStore, true;
      next(t);
      return true;
    default:
      store(s);
      next(t);
      return true;
  }
}

// RangeOps::take, give_back; ServerBackend::call_on.
bool CallModel::step_written_call(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kOwn:
      if (is_owned(s) || (s.pins > 0 && !is_broken(BrokenCall::kWrittenIgnoresPins))) return false;
      t.dirty = s.word == Word::kNear && s.dirty;
      t.had_copy = s.word == Word::kNear;
      s.word = Word::kEvicting;
      t.pc = t.dirty ? Pc::kOwnProtect : Pc::kOwnUnmap;
      return true;
    case Pc::kOwnProtect:
      if (!is_broken(BrokenCall::kStoredWithoutProtection)) s.writable = 0;
      t.pc = Pc::kOwnStore;
      return true;
    case Pc::kOwnStore:
      if (!is_broken(BrokenCall::kWrittenIsNotStored)) store(s);
      t.pc = Pc::kOwnUnmap;
      return true;
    case Pc::kOwnUnmap:
      if (!is_broken(BrokenCall::kWrittenStaysMapped)) s.mapped = s.writable = 0;
      s.dirty = 0;
      if (is_broken(BrokenCall::kWrittenIsNotOwned)) s.word = Word::kFar;
      t.pc = Pc::kRun;
      return true;
    case Pc::kRun:
      if (s.truth[i] != kUndefined && s.far[i] != s.truth[i]) *wrong = "a function read an old value";
      if (op(i, t) == 'b') {
        s.function = static_cast<uint8_t>(i + 1);
        s.truth[i] = kUndefined;
        t.pc = Pc::kReopen;
        return true;
      }
      s.far[i] = s.truth[i] = value(i, t);
      t.pc = Pc::kGiveBack;
      return true;
    case Pc::kReopen:
      if (!is_broken(BrokenCall::kBreakDoesNotWait)) s.function = 0;  // the process is dead when the server answers
      t.pc = Pc::kGiveBack;
      return true;
    default: {
      bool keeps = is_broken(BrokenCall::kGiveBackKeepsOldMapping) && t.had_copy;
      if (!is_broken(BrokenCall::kWrittenIsNotOwned)) s.word = keeps ? Word::kNear : Word::kFar;
      if (keeps) s.mapped = 1;
      s.written_call = 0;
      next(t);
      return true;
    }
  }
}

// The page is written from its frame, which no store can reach once it is unmapped.
bool CallModel::step_evictor(State& s) const {
  switch (s.eviction) {
    case 0:
      if (s.evicted == scenario_.evictions || s.word != Word::kNear || s.upgrading || s.pins > 0) return false;
      s.word = Word::kEvicting;
      break;
    case 1:
      s.mapped = s.writable = 0;
      break;
    case 2:
      if (s.dirty) store(s);
      break;
    default:
      s.word = Word::kFar;
      s.dirty = 0;
      s.eviction = 0;
      s.evicted++;
      return true;
  }
  s.eviction++;
  return true;
}

const char* CallModel::check(const State& s) const {
  if (s.writable && !s.mapped) return "a page that is not mapped is writable";
  bool settled_dirty = s.settled == kSettled && s.word == Word::kNear && s.dirty && s.writable && !s.upgrading;
  return settled_dirty ? "a settled window has a dirty page" : nullptr;
}

bool CallModel::done(const State& s) const {
  for (unsigned i = 0; i < kThreads; i++) {
    if (s.threads[i].pc != Pc::kStart || op(i, s.threads[i]) != 0) return false;
  }
  return s.eviction == 0 && s.function == 0;
}

// What the program would read.
const char* CallModel::check_done(const State& s) const {
  for (unsigned i = 0; i < kThreads; i++) {
    uint8_t found = s.word == Word::kNear ? s.near[i] : s.far[i];
    if (s.truth[i] != kUndefined && found != s.truth[i]) return "a write was lost";
  }
  return nullptr;
}

std::string CallModel::describe(const State& s, unsigned actor) const {
  std::string text = actor == kEvictor    ? "evictor"
                     : actor == kFunction ? "function"
                                          : "thread " + std::to_string(actor);
  for (unsigned i = 0; i < kThreads; i++) {
    const Thread& t = s.threads[i];
    text += "  [" + std::string(1, op(i, t) ? op(i, t) : '-') + " step " + std::to_string(static_cast<int>(t.pc)) +
            " near " + std::to_string(s.near[i]) + " far " + std::to_string(s.far[i]) + " truth " +
            std::to_string(s.truth[i]) + "]";
  }
  return text + "  word " + std::to_string(static_cast<int>(s.word)) + (s.dirty ? " dirty" : "") +
         (s.upgrading ? " upgrading" : "") + (s.mapped ? " mapped" : "") + (s.writable ? " writable" : "") +
         " settled " + std::to_string(s.settled);
}

}  // namespace farside::model
