// How huge pages become near in the huge page model: HugePath.
#include <bit>

#include "huge_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

namespace {

constexpr uint8_t kAll = (1u << HugeModel::kPages) - 1;

bool has(uint8_t mask, unsigned page) { return (mask >> page & 1) != 0; }
void set(uint8_t& mask, unsigned page) { mask = static_cast<uint8_t>(mask | 1u << page); }

}  // namespace

// ---- The pool ----

// FramePool::take, take_empty.
uint8_t HugeModel::take_slot(State& s, bool empty) {
  for (uint8_t slot = 0; slot < kSlots; slot++) {
    bool fits = empty ? !has(s.free_slots, slot) && !has(s.taken_slots, slot) : has(s.free_slots, slot);
    if (!fits) continue;
    s.free_slots = static_cast<uint8_t>(s.free_slots & ~(1u << slot));
    set(s.taken_slots, slot);
    return slot;
  }
  return kNone;
}

// The slot's frame is free: it may be filled with anything.
void HugeModel::put_slot(State& s, uint8_t slot) {
  for (unsigned p = 0; p < kPages; p++) s.pages[p].frames[s.slots[slot][p]] = kForgotten;
  s.taken_slots = static_cast<uint8_t>(s.taken_slots & ~(1u << slot));
  set(s.free_slots, slot);
}

// The slot has no frame any more.
void HugeModel::drop_slot(State& s, uint8_t slot) {
  for (unsigned p = 0; p < kPages; p++) s.slots[slot][p] = kNone;
  s.taken_slots = static_cast<uint8_t>(s.taken_slots & ~(1u << slot));
}

// ---- Start ----

bool HugeModel::comes_whole(const State& s) {
  unsigned far = 0;
  for (unsigned p = 0; p < kPages; p++) {
    PageWord w = word_of(s, p);
    bool usable = w.is(PageState::kFar) || w.is(PageState::kUntouched) || w.is(PageState::kNear);
    if (!usable || is_excluded(w)) return false;
    far += w.is(PageState::kFar);
  }
  return far > 0;
}

// HugePath::start and fill.
bool HugeModel::start_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  Fetch& f = s.fetches[i];
  bool fills = kind_of(i, t) == 'f';
  if (t.pc == Pc::kLook) {
    bool untouched = true;
    for (unsigned p = 0; p < kPages; p++) untouched &= word_of(s, p).is(PageState::kUntouched);
    bool applies = f.pc == FetchPc::kNone && (fills ? untouched : comes_whole(s));
    t.pc = Pc::kSlot;
    if (!applies) next_op(s, i);
    return true;
  }
  if (t.pc == Pc::kSlot) {
    uint8_t slot = take_slot(s, false);
    if (slot == kNone) {
      next_op(s, i);
      return true;
    }
    f.pc = FetchPc::kStarting;
    f.slot = slot;
    f.frames = kPages;
    f.write = fills || kind_of(i, t) == 't' || kind_of(i, t) == 'p';
    f.ahead = kind_of(i, t) == 'a';
    t.inside = 1;
    t.at = 0;
    t.pc = Pc::kClaim;
    return true;
  }
  return claim_step(s, i);
}

bool HugeModel::claim_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  Fetch& f = s.fetches[i];
  char kind = kind_of(i, t);
  PageWord w = word_of(s, t.at);
  switch (t.pc) {
    case Pc::kClaim:
      if ((w.is(PageState::kFar) || w.is(PageState::kUntouched)) && !is_excluded(w)) {
        set(f.claimed, t.at);
        if (w.is(PageState::kUntouched)) set(f.empty, t.at);
        change(s, t.at, w.with_state(PageState::kFetching).with_owner(static_cast<uint16_t>(i + 1)));
      }
      if (++t.at < kPages) return true;
      t.at = 0;
      t.pc = kind != 'f' ? Pc::kSums : f.claimed == kAll && f.empty == kAll ? Pc::kStreamWait : Pc::kUnclaim;
      if (t.pc == Pc::kStreamWait) {
        for (unsigned p = 0; p < kPages; p++) s.pages[p].frames[s.slots[f.slot][p]] = kZeroPage;
        f.pc = FetchPc::kUnmap;
      }
      return true;
    case Pc::kUnclaim:
      if (has(f.claimed, t.at))
        change(s, t.at, w.with_state(has(f.empty, t.at) ? PageState::kUntouched : PageState::kFar).with_owner(0));
      if (++t.at < kPages) return true;
      put_slot(s, f.slot);
      f = Fetch();
      next_op(s, i);
      return true;
    default:
      f.has_sums = kind == 'p' || (kind != 't' && !is_alone());
      if (broken(BrokenHuge::kSharedSums)) {
        f.generation = ++s.generation;  // the array before is freed
        for (Page& page : s.pages) page.sum = kNoSum;
      }
      f.pc = FetchPc::kRead;
      t.at = 0;
      t.pc = Pc::kStreamWait;
      if (f.ahead) next_op(s, i);
      return true;
  }
}

// ---- Completion ----

// The owner completes a fetch when it needs the huge page or ends, a fork completes it, and so does any thread that
// waits for one of its pages.
bool HugeModel::is_driven(const State& s, unsigned i) const {
  if (s.threads[i].pc == Pc::kStreamWait || s.threads[i].pc == Pc::kDone) return true;
  for (unsigned k = 0; k < kThreads; k++) {
    const Thread& t = s.threads[k];
    if (t.pc == Pc::kFork) return true;
    if (k != i && broken(BrokenHuge::kNoHelp)) continue;
    bool may_wait = t.pc == Pc::kFault || t.pc == Pc::kOwn || t.pc == Pc::kStore || t.pc == Pc::kFree;
    if (!may_wait) continue;
    PageWord w = word_of(s, t.at);
    if (w.is(PageState::kFetching) && w.owner() == i + 1) return true;
  }
  return false;
}

// HugePath::finish.
bool HugeModel::in_step(State& s, unsigned i, Kernel kernel, const char** wrong) const {
  Fetch& f = s.fetches[i];
  if (kernel != Kernel::kMoves && f.pc != FetchPc::kMove) return false;
  switch (f.pc) {
    case FetchPc::kNone:
    case FetchPc::kStarting:
      return false;
    case FetchPc::kRead:
      if (!is_driven(s, i)) return false;
      if (broken(BrokenHuge::kSharedSums) && f.has_sums && f.generation != s.generation)
        *wrong = "a sum was written to an array that was freed";
      for (unsigned p = 0; p < kPages; p++) {
        Value read = has(f.empty, p) ? kZeroPage : has(f.claimed, p) ? s.pages[p].far : kForgotten;
        s.pages[p].frames[s.slots[f.slot][p]] = read;
        if (f.has_sums && has(f.claimed, p)) f.sums[p] = has(f.empty, p) ? kNoSum : s.pages[p].far;
      }
      f.pc = f.claimed == kAll ? FetchPc::kUnmap : FetchPc::kClaimNear;
      return true;
    case FetchPc::kClaimNear:
    case FetchPc::kRevert:
    case FetchPc::kProtect:
    case FetchPc::kCopy:
      return near_step(s, f, wrong);
    case FetchPc::kUnmap:
    case FetchPc::kMove:
    case FetchPc::kMoveProtect:
      return move_step(s, f, kernel);
    case FetchPc::kCopyMap:
    case FetchPc::kCopyPublish:
    case FetchPc::kCopyEnd:
      return copy_in_step(s, f);
    default:
      return publish_step(s, f);
  }
}

// HugePath::claim_near and copy_near.
bool HugeModel::near_step(State& s, Fetch& f, const char** wrong) const {
  bool late = broken(BrokenHuge::kCopyBeforeProtection);
  if (f.pc == FetchPc::kClaimNear) {
    PageWord w = word_of(s, f.at);
    bool can_own = w.is(PageState::kNear) && (w.pins() == 0 || broken(BrokenHuge::kClaimNearPinned)) &&
                   (!w.has(PageWord::kUpgrading) || broken(BrokenHuge::kClaimNearUpgrading)) && !w.is_free();
    if (has(f.claimed, f.at)) {
      f.at++;
    } else if (can_own) {
      PageWord owned = w.with_state(PageState::kEvicting);
      change(s, f.at, broken(BrokenHuge::kRevertKeepsHuge) ? owned : owned.with_owner(0));
      f.frames++;
      set(f.near, f.at++);
    } else {
      f.pc = FetchPc::kRevert;
    }
    if (f.at == kPages) f.at = 0, f.pc = late ? FetchPc::kCopy : FetchPc::kProtect;
    return true;
  }
  if (f.pc == FetchPc::kRevert) {
    if (f.near == 0) {
      f.at = 0;
      f.pc = FetchPc::kCopyMap;
      return true;
    }
    auto p = static_cast<unsigned>(std::countr_zero(f.near));
    change(s, p, word_of(s, p).with_state(PageState::kNear));
    if (!broken(BrokenHuge::kRevertDoesNotInsert)) insert(s, p);
    f.near = static_cast<uint8_t>(f.near & ~(1u << p));
    f.frames--;
    return true;
  }
  if (f.pc == FetchPc::kProtect) {
    for (unsigned p = 0; p < kPages; p++) {
      if (s.pages[p].frame != kNone) s.pages[p].write_protected = 1;
    }
    f.pc = late ? FetchPc::kUnmap : FetchPc::kCopy;
    return true;
  }
  for (unsigned p = 0; p < kPages; p++) {
    if (!has(f.near, p)) continue;
    Value content = content_of(s, p);
    if (s.pages[p].frame == kNone) *wrong = "a fault inside the fault path";
    s.pages[p].frames[s.slots[f.slot][p]] = content;
    bool changed = word_of(s, p).has(PageWord::kDirty) && !broken(BrokenHuge::kSumOfChangedPage);
    if (f.has_sums) f.sums[p] = changed ? kNoSum : content;
  }
  f.pc = late ? FetchPc::kProtect : FetchPc::kUnmap;
  return true;
}

// HugePath::move_in.
bool HugeModel::move_step(State& s, Fetch& f, Kernel kernel) const {
  if (f.pc == FetchPc::kUnmap) {
    for (Page& page : s.pages) page.frame = kNone, page.write_protected = page.exclusive = 0;
    f.pc = FetchPc::kMove;
    return true;
  }
  if (f.pc == FetchPc::kMove) {
    if (kernel == Kernel::kRefuses && !scenario_.refuses) return false;
    if (kernel == Kernel::kStops && !scenario_.stops) return false;
    f.moved = kernel == Kernel::kMoves ? kPages : kernel == Kernel::kStops ? 1 : 0;
    for (unsigned p = 0; p < f.moved; p++) {
      s.pages[p].frame = s.slots[f.slot][p];
      s.pages[p].exclusive = 1;
      s.slots[f.slot][p] = kNone;
    }
    f.at = 0;
    f.pc = f.moved == 0 ? FetchPc::kCopyMap : FetchPc::kMoveProtect;
    if (f.moved == kPages) drop_slot(s, f.slot), f.slot = kNone;
    return true;
  }
  for (unsigned p = 0; p < f.moved; p++) s.pages[p].write_protected = !f.write;
  f.pc = f.moved == kPages ? FetchPc::kInstall : FetchPc::kCopyMap;
  return true;
}

// HugePath::publish.
bool HugeModel::publish_step(State& s, Fetch& f) const {
  bool early = broken(BrokenHuge::kPushBeforePublish);
  switch (f.pc) {
    case FetchPc::kInstall:
      // Pages that were filled with zeros need no sums: those of an earlier stay may remain.
      for (unsigned p = 0; p < kPages && f.empty != kAll; p++) s.pages[p].sum = f.has_sums ? f.sums[p] : kNoSum;
      f.pc = early ? FetchPc::kFlag : FetchPc::kPublish;
      return true;
    case FetchPc::kPublish: {
      PageWord w = word_of(s, f.at);
      PageWord near = w.with_state(PageState::kNear).with_owner(0).with(PageWord::kHuge);
      bool clean = (is_alone() || broken(BrokenHuge::kPublishClean)) && !w.has(PageWord::kDirty);
      if (f.write || clean) near = near.without(PageWord::kCow).with(f.write ? PageWord::kDirty : 0);
      else near = near.with(PageWord::kDirty | (broken(BrokenHuge::kPublishWithoutCow) ? 0 : PageWord::kCow));
      change(s, f.at, near);
      f.frames--;
      if (++f.at == kPages) f.pc = early ? FetchPc::kEnd : FetchPc::kFlag;
      return true;
    }
    case FetchPc::kFlag: {
      FetchPc next = early ? FetchPc::kPublish : FetchPc::kEnd;
      f.pc = s.queued ? next : FetchPc::kEnqueue;
      s.queued = 1;
      return true;
    }
    case FetchPc::kEnqueue:
      s.entries++;
      f.pc = early ? FetchPc::kPublish : FetchPc::kEnd;
      return true;
    default:
      s.used = static_cast<uint8_t>(s.used - std::popcount(f.near));
      f = Fetch();
      return true;
  }
}

// HugePath::copy_in.
bool HugeModel::copy_in_step(State& s, Fetch& f) const {
  if (f.pc == FetchPc::kCopyEnd) {
    drop_slot(s, f.slot);
    s.used = static_cast<uint8_t>(s.used - (kPages - f.owned) - static_cast<unsigned>(std::popcount(f.near)));
    f = Fetch();
    return true;
  }
  bool owns = has(f.claimed, f.at) || has(f.near, f.at);
  if (!owns && !broken(BrokenHuge::kCopyInAll)) {
    f.pc = ++f.at == kPages ? FetchPc::kCopyEnd : FetchPc::kCopyMap;
    return true;
  }
  PageWord w = word_of(s, f.at);
  bool is_moved = f.at < f.moved, write = f.write || w.has(PageWord::kDirty);
  if (f.pc == FetchPc::kCopyMap) {
    if (!is_moved) map(s, f.at, s.pages[f.at].frames[s.slots[f.slot][f.at]], !write);
    f.pc = FetchPc::kCopyPublish;
    return true;
  }
  uint64_t flags = write ? PageWord::kDirty : 0;
  if (is_moved && !f.write && !broken(BrokenHuge::kCopyInForgetsStores)) flags = PageWord::kDirty | PageWord::kCow;
  change(s, f.at, w.with_state(PageState::kNear).with_owner(0).without(PageWord::kCow).with(flags));
  insert(s, f.at);
  f.owned++;
  f.frames--;
  f.pc = ++f.at == kPages ? FetchPc::kCopyEnd : FetchPc::kCopyMap;
  return true;
}

}  // namespace farside::model
