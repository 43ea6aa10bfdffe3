// The evictors of the page model: ShardedPolicy::take and the five phases, one page per batch.
#include "page_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

bool PageModel::evictor_step(State& s, unsigned i, bool fails) const {
  EvictorState& e = s.evictors[i];
  PageWord w = word_of(s);
  if (fails && e.pc == EvictorPc::kIdle) {  // freed pages are taken out of turn
    bool takes = !s.pausing && w.is(PageState::kNear) && w.has(PageWord::kFreed);
    if (takes) e.pc = EvictorPc::kClaim;
    return takes;
  }
  if (fails && !(scenario_.holds_fail && e.pc == EvictorPc::kHold)) return false;
  return e.pc < EvictorPc::kHold ? select_step(s, e) : batch_step(s, e, fails);
}

// Takes the page from its queue and claims it, or inserts it again.
bool PageModel::select_step(State& s, EvictorState& e) const {
  PageWord w = word_of(s);
  switch (e.pc) {
    case EvictorPc::kIdle:
      if (s.pausing || s.queue == 0) return false;
      s.queue--;
      e.pc = broken(Broken::kUnqueueAfterReading) ? EvictorPc::kReadState : EvictorPc::kUnqueue;
      return true;
    case EvictorPc::kReadState:
      e.near = w.is(PageState::kNear);
      e.pc = EvictorPc::kUnqueue;
      return true;
    case EvictorPc::kUnqueue: {
      bool near = broken(Broken::kUnqueueAfterReading) ? e.near : w.is(PageState::kNear);
      set_word(s, w.without(PageWord::kQueued));
      e = EvictorState();
      e.pc = near ? EvictorPc::kClaim : EvictorPc::kIdle;
      return true;
    }
    case EvictorPc::kClaim:
      if (!w.is(PageState::kNear)) {
        e.pc = EvictorPc::kIdle;
      } else if ((w.pins() > 0 && !broken(Broken::kEvictorIgnoresPins)) || w.has(PageWord::kUpgrading)) {
        e.pc = EvictorPc::kReinsert;
      } else {
        set_word(s, w.with_state(PageState::kEvicting));
        e.frames = 1;
        e.dirty = w.has(PageWord::kDirty) && !w.has(PageWord::kFreed);
        e.pc = w.has(PageWord::kFreed)                       ? EvictorPc::kForget
               : e.dirty && !broken(Broken::kHoldAfterUnmap) ? EvictorPc::kHold
                                                             : EvictorPc::kUnmap;
      }
      return true;
    case EvictorPc::kForget:
      set_word(s, w.without(PageWord::kDirty));
      e.pc = EvictorPc::kUnmap;
      return true;
    case EvictorPc::kReinsert:
      set_word(s, w.with(PageWord::kQueued));
      e.pc = w.has(PageWord::kQueued) ? EvictorPc::kIdle : EvictorPc::kRepush;
      return true;
    case EvictorPc::kRepush:
      s.queue++;
      e.pc = EvictorPc::kIdle;
      return true;
    default:
      return false;
  }
}

// Hold, unmap, write, release.
bool PageModel::batch_step(State& s, EvictorState& e, bool fails) const {
  PageWord w = word_of(s);
  switch (e.pc) {
    case EvictorPc::kHold:
      e.pipe = fails ? kNoFrame : s.here.frame;
      e.pc = e.pipe == kNoFrame ? EvictorPc::kGiveUp : EvictorPc::kUnmap;
      return true;
    case EvictorPc::kGiveUp:
      set_word(s, w.with_state(PageState::kNear));
      e = EvictorState();
      e.pc = EvictorPc::kReinsert;
      return true;
    case EvictorPc::kUnmap:
      s.here = Mapping();
      e.pc = !e.dirty                          ? EvictorPc::kRelease
             : broken(Broken::kHoldAfterUnmap) ? EvictorPc::kLateHold
                                               : EvictorPc::kWrite;
      return true;
    case EvictorPc::kLateHold:
      e.pipe = s.here.frame;
      e.pc = EvictorPc::kWrite;
      return true;
    case EvictorPc::kRelease: {
      PageState to = w.has(PageWord::kStored) ? PageState::kFar : PageState::kUntouched;
      PageWord kept(w.bits() & (PageWord::kPinMask | PageWord::kQueued));
      set_word(s, w.has(PageWord::kFreed) ? kept.with_state(PageState::kUnmapped)
                                          : w.with_state(to).without(PageWord::kCow));
      e.pc = EvictorPc::kGive;
      return true;
    }
    case EvictorPc::kWrite:
      s.far = e.pipe == kNoFrame ? kForgotten : s.frames[e.pipe];
      e.pipe = kNoFrame;
      e.pc = EvictorPc::kFinish;
      return true;
    case EvictorPc::kFinish:
      set_word(s, w.with_state(PageState::kFar).without(PageWord::kDirty | PageWord::kCow).with(PageWord::kStored));
      e.pc = EvictorPc::kGive;
      return true;
    case EvictorPc::kGive:
      s.used--;
      e = EvictorState();
      return true;
    default:
      return false;
  }
}

}  // namespace farside::model
