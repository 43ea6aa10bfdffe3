// How pages leave in the huge page model: HugeEvictor, and Evictor for single pages.
#include <bit>

#include "huge_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

// ---- Huge pages ----

bool HugeModel::out_step(State& s, Out& e, Kernel kernel, const char** wrong) const {
  if (kernel != Kernel::kMoves && e.pc != OutPc::kMove) return false;
  switch (e.pc) {
    case OutPc::kIdle:
      if (s.entries == 0) return false;
      s.entries--;
      e.pc = broken(BrokenHuge::kClearAfterLook) ? OutPc::kClaim : OutPc::kClear;
      e.retry = 1;
      return true;
    case OutPc::kClear:
      s.queued = 0;
      e.pc = OutPc::kClaim;
      return true;
    case OutPc::kClaim:
      return claim_out_step(s, e);
    case OutPc::kMove:
    case OutPc::kMoveBack:
      return move_out_step(s, e, kernel);
    case OutPc::kWrite:
    case OutPc::kFinish:
    case OutPc::kRelease:
      return leave_step(s, e, wrong);
    default:
      return return_step(s, e);
  }
}

bool HugeModel::claim_out_step(State& s, Out& e) const {
  PageWord w = word_of(s, e.at);
  bool is_near = w.is(PageState::kNear);
  bool can_own = is_near && (w.pins() == 0 || broken(BrokenHuge::kTakePinned)) &&
                 (!w.has(PageWord::kUpgrading) || broken(BrokenHuge::kTakeUpgrading));
  if (can_own) {
    change(s, e.at, w.with_state(PageState::kEvicting));
    e.claimed = static_cast<uint8_t>(e.claimed | 1u << e.at);
    e.frames++;
  } else if (!is_near) {
    e.retry = 0;
  }
  if (++e.at < kPages) return true;
  e.at = 0;
  bool all = std::popcount(e.claimed) == kPages;
  if (broken(BrokenHuge::kClearAfterLook) && (all || e.retry)) s.queued = 0;
  if (all) e.retry = 0;
  OutPc early = e.retry && broken(BrokenHuge::kPushBeforeUnclaim)       ? OutPc::kFlag
                : !e.retry && broken(BrokenHuge::kBreakUpBeforeUnclaim) ? OutPc::kBreakUp
                                                                        : OutPc::kUnclaim;
  e.pc = all ? OutPc::kMove : early;
  return true;
}

// A frame that a child shares is not moved: EBUSY.
bool HugeModel::move_out_step(State& s, Out& e, Kernel kernel) const {
  if (e.pc == OutPc::kMoveBack) {
    s.pages[0].frame = s.slots[e.slot][0];
    s.pages[0].exclusive = 1;
    s.slots[e.slot][0] = kNone;
    drop_slot(s, e.slot);
    e.slot = kNone;
    e.moved_back = 1;
    e.pc = OutPc::kUnclaim;
    return true;
  }
  if (kernel == Kernel::kRefuses && !scenario_.refuses) return false;
  if (kernel == Kernel::kStops && !scenario_.stops) return false;
  bool shared = false;
  for (const Page& page : s.pages) shared |= !page.exclusive;
  bool refuses = kernel == Kernel::kRefuses || (shared && !broken(BrokenHuge::kMoveShared));
  e.slot = refuses ? kNone : take_slot(s, true);
  if (e.slot == kNone) {
    e.pc = broken(BrokenHuge::kBreakUpBeforeUnclaim) ? OutPc::kBreakUp : OutPc::kUnclaim;
    return true;
  }
  unsigned moved = kernel == Kernel::kStops ? 1 : kPages;
  for (unsigned p = 0; p < moved; p++) {
    Page& page = s.pages[p];
    s.slots[e.slot][p] = page.frame;
    page.frame = kNone;
    page.write_protected = page.exclusive = 0;
  }
  e.pc = moved < kPages ? OutPc::kMoveBack : OutPc::kWrite;
  return true;
}

// The pages are near again: HugeEvictor::unclaim, then HugeQueue::push or break_up.
bool HugeModel::return_step(State& s, Out& e) const {
  bool pushed_early = e.retry && broken(BrokenHuge::kPushBeforeUnclaim);
  bool broken_early = !e.retry && broken(BrokenHuge::kBreakUpBeforeUnclaim) && !e.moved_back;
  PageWord w = word_of(s, e.at);
  switch (e.pc) {
    case OutPc::kUnclaim:
      if (e.claimed >> e.at & 1) {
        PageWord near = w.with_state(PageState::kNear);
        bool writable = e.at < e.moved_back && !broken(BrokenHuge::kMovedBackClean);
        change(s, e.at, writable ? near.without(PageWord::kCow).with(PageWord::kDirty) : near);
        // The evictor of single pages may have taken its entry meanwhile.
        if (!w.has(PageWord::kHuge) && !broken(BrokenHuge::kUnclaimDoesNotInsert)) insert(s, e.at);
        e.frames--;
      }
      if (++e.at < kPages) return true;
      e.at = 0;
      e.pc = e.retry ? OutPc::kFlag : OutPc::kBreakUp;
      if (broken(e.retry ? BrokenHuge::kNoPush : BrokenHuge::kNoBreakUp) || pushed_early || broken_early) e = Out();
      return true;
    case OutPc::kFlag:
    case OutPc::kEnqueue: {
      bool was_queued = e.pc == OutPc::kFlag && s.queued;
      bool ends = e.pc == OutPc::kEnqueue || was_queued;
      if (e.pc == OutPc::kEnqueue) s.entries++;
      s.queued = 1;
      if (!ends) e.pc = OutPc::kEnqueue;
      else if (pushed_early) e.pc = OutPc::kUnclaim;
      else e = Out();
      return true;
    }
    case OutPc::kBreakUp:
      if (w.is(PageState::kNear) && w.has(PageWord::kHuge)) {
        change(s, e.at, w.without(PageWord::kHuge));
        e.pc = OutPc::kInsert;
        return true;
      }
      break;
    default:
      if (!broken(BrokenHuge::kBreakUpDoesNotInsert)) insert(s, e.at);
      e.pc = OutPc::kBreakUp;
      break;
  }
  if (++e.at < kPages) return true;
  e.at = 0;
  if (broken(BrokenHuge::kClearAfterLook)) s.queued = 0;
  if (broken_early) e.pc = OutPc::kUnclaim;
  else e = Out();
  return true;
}

// HugeEvictor::find_changed, write, finish.
bool HugeModel::leave_step(State& s, Out& e, const char** wrong) const {
  if (e.pc == OutPc::kWrite) {
    for (unsigned p = 0; p < kPages; p++) {
      PageWord w = word_of(s, p);
      Page& page = s.pages[p];
      Value content = page.frames[s.slots[e.slot][p]];
      if (w.has(PageWord::kFreed)) continue;
      bool has_sum = w.has(PageWord::kHuge) || broken(BrokenHuge::kSumWithoutHuge);
      bool same = w.has(PageWord::kStored) ? has_sum && page.sum == content : content == kZeroPage;
      if (w.has(PageWord::kDirty) && !same) page.far = content;
      else if (!is_same_as_far(s, p, content)) *wrong = "W: a changed page was evicted as clean";
    }
    if (broken(BrokenHuge::kSharedSums)) s.generation++;
    for (Page& page : s.pages) page.sum = kNoSum;
    e.pc = OutPc::kFinish;
    return true;
  }
  if (e.pc == OutPc::kFinish) {
    PageWord w = word_of(s, e.at);
    bool zero = s.pages[e.at].frames[s.slots[e.slot][e.at]] == kZeroPage;
    bool stored = w.has(PageWord::kStored) || (w.has(PageWord::kDirty) && !zero);
    PageWord gone = w.without(PageWord::kDirty | PageWord::kCow | PageWord::kHuge).with(stored ? PageWord::kStored : 0);
    change(s, e.at,
           w.has(PageWord::kFreed) ? w.without_content().with_state(PageState::kUnmapped)
                                   : gone.with_state(stored ? PageState::kFar : PageState::kUntouched));
    if (++e.at == kPages) e.pc = OutPc::kRelease;
    return true;
  }
  if (s.free_slots == 0) {
    put_slot(s, e.slot);
  } else {
    drop_slot(s, e.slot);
    s.used = static_cast<uint8_t>(s.used - kPages);
  }
  e = Out();
  return true;
}

// ---- Single pages ----

void HugeModel::claim_page(State& s, PageOut& e, unsigned p) {
  PageWord w = word_of(s, p);
  if (!w.is(PageState::kNear)) {
    e = PageOut();
  } else if (w.pins() > 0 || w.has(PageWord::kUpgrading)) {
    insert(s, p);
    e = PageOut();
  } else {
    e.dirty = w.has(PageWord::kDirty) && !w.has(PageWord::kFreed);
    w = w.with_state(PageState::kEvicting);
    change(s, p, w);
    if (w.has(PageWord::kFreed)) change(s, p, w.without(PageWord::kDirty));
    e.frames = 1;
    e.pc = e.dirty ? PagePc::kHold : PagePc::kUnmap;
  }
}

void HugeModel::release_page(State& s, PageOut& e, unsigned p) {
  PageWord w = word_of(s, p);
  Page& page = s.pages[p];
  if (e.dirty) page.far = page.frames[e.pipe];
  bool stored = e.dirty || w.has(PageWord::kStored);
  PageWord gone = w.without(PageWord::kDirty | PageWord::kCow | PageWord::kHuge).with(stored ? PageWord::kStored : 0);
  change(s, p,
         w.has(PageWord::kFreed) ? w.without_content().with_state(PageState::kUnmapped)
                                 : gone.with_state(stored ? PageState::kFar : PageState::kUntouched));
  s.used--;
  e = PageOut();
}

// choice: the page that is taken; kPages: the kernel refuses to hold it.
bool HugeModel::page_out_step(State& s, unsigned choice, const char** wrong) const {
  PageOut& e = s.page_out;
  unsigned p = e.pc == PagePc::kIdle ? choice : e.page;
  if (e.pc == PagePc::kHold ? choice != 0 && (choice < kPages || !scenario_.holds_fail)
                            : choice != (e.pc == PagePc::kIdle ? p : 0) || p >= kPages)
    return false;
  PageWord w = word_of(s, p);
  Page& page = s.pages[p];
  switch (e.pc) {
    case PagePc::kIdle:
      if (!w.has(PageWord::kQueued)) return false;
      change(s, p, w.without(PageWord::kQueued));
      if (!w.is(PageState::kNear)) return true;
      e.page = static_cast<uint8_t>(p);
      e.pc = PagePc::kLook;
      return true;
    case PagePc::kLook:
      e.pc = PagePc::kClaim;
      if (w.is(PageState::kNear) && w.has(PageWord::kHuge)) e = PageOut();
      return true;
    case PagePc::kClaim:
      claim_page(s, e, p);
      return true;
    case PagePc::kHold:
      e.pipe = choice == kPages ? kNone : page.frame;
      e.pc = choice == kPages ? PagePc::kUnheld : PagePc::kUnmap;
      return true;
    case PagePc::kUnheld:
      w = w.with_state(PageState::kNear);
      change(s, p, broken(BrokenHuge::kUnheldKeepsHuge) ? w : w.without(PageWord::kHuge));
      insert(s, p);
      e = PageOut();
      return true;
    case PagePc::kUnmap:
      if (!e.dirty && !w.has(PageWord::kFreed) && !is_same_as_far(s, p, content_of(s, p)))
        *wrong = "W: a changed page was evicted as clean";
      page.frame = kNone;
      page.write_protected = page.exclusive = 0;
      e.pc = PagePc::kRelease;
      return true;
    default:
      release_page(s, e, p);
      return true;
  }
}

}  // namespace farside::model
