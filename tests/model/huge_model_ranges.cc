// The calls on ranges of the model of huge pages, RangeOps: pin, discard, free and allocate again, write back; and
// forks.
#include "huge_model.h"

namespace farside::model {

using pager::PageState;
using pager::PageWord;

// RangeOps::own records in the owner field what becomes of the page's frame.
constexpr uint16_t kNoFrame = 0, kHeld = 1, kKept = 2;

// RangeOps::pin_one, the system call, RangeOps::unpin.
bool HugeModel::pin_step(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  unsigned at = first_of(i, t);
  PageWord w = word_of(s, at);
  if (t.pc == Pc::kPin) {
    t.inside = 0;
    bool ready = w.is(PageState::kNear) && !w.has(PageWord::kUpgrading) && w.writable();
    if (ready) change(s, at, PageWord(w.bits() + PageWord::kPinOne));
    t.pc = ready ? Pc::kKernelWrite : Pc::kFault;
  } else if (t.pc == Pc::kKernelWrite) {
    auto value = static_cast<Value>(16 + i * 32 + t.op);
    if (!store(s, at, &value)) *wrong = "a system call got EFAULT on a pinned page";
    s.pages[at].truth = value;
    t.pc = Pc::kUnpin;
  } else {
    change(s, at, PageWord(w.bits() - PageWord::kPinOne));
    next_op(s, i);
  }
  return true;
}

// RangeOps::drop_piece. A discard takes effect when no thread can use the page any more.
bool HugeModel::range_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  unsigned first = first_of(i, t), end = end_of(i, t);
  PageWord w = word_of(s, t.at);
  if (t.pc == Pc::kOwn) {
    if (is_owned(w)) return false;
    bool near = w.is(PageState::kNear);
    change(s, t.at, w.with_state(PageState::kEvicting).with_owner(near ? kHeld : kNoFrame));
    t.frames = static_cast<uint8_t>(t.frames + near);
    if (!near) s.pages[t.at].truth = kZeroPage;
    t.inside = 1;
    if (++t.at == end) t.pc = Pc::kDrop;
    return true;
  }
  if (t.pc == Pc::kDrop) {
    for (unsigned p = first; p < end; p++) {
      Page& page = s.pages[p];
      if (word_of(s, p).owner() == kHeld) page.frame = kNone, page.write_protected = page.exclusive = 0;
      page.far = kForgotten;
      page.truth = kZeroPage;
    }
    t.at = static_cast<uint8_t>(first);
    t.pc = Pc::kDropFinish;
    return true;
  }
  change(s, t.at, w.without_content().with_state(PageState::kUntouched));
  if (++t.at < end) return true;
  s.used = static_cast<uint8_t>(s.used - t.frames);
  next_op(s, i);
  return true;
}

// RangeOps::free and commit. The other threads do not access the page meanwhile.
bool HugeModel::free_step(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  unsigned at = first_of(i, t);
  PageWord w = word_of(s, at);
  switch (t.pc) {
    case Pc::kFree:
      if (is_owned(w)) return false;
      t.pc = Pc::kOwn;
      if (!w.writable() || w.pins() > 0) return true;  // dropped, and allocated again
      change(s, at, w.with_state(PageState::kEvicting).with_owner(kKept));
      t.seen = w.bits() & PageWord::kHuge;
      t.frames = t.inside = 1;
      t.pc = Pc::kKeep;
      return true;
    case Pc::kKeep: {
      PageWord kept = w.without_content().with(PageWord::kDirty | PageWord::kFreed).with_state(PageState::kNear);
      change(s, at, broken(BrokenHuge::kFreedKeepsHuge) ? kept.with(t.seen) : kept);
      insert(s, at);
      s.pages[at].far = kForgotten;
      t.seen = t.frames = t.inside = 0;
      t.pc = Pc::kTakeBack;
      return true;
    }
    case Pc::kTakeBack:
      if (w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading)) return false;
      if (w.is(PageState::kUnmapped)) {
        change(s, at, w.with_state(PageState::kUntouched));
        s.pages[at].truth = kZeroPage;
        next_op(s, i);
      } else if (!w.writable()) {
        t.pc = Pc::kOwn;
      } else {
        change(s, at, w.with_state(PageState::kEvicting).with_owner(kKept));
        t.frames = t.inside = 1;
        t.pc = Pc::kZero;
      }
      return true;
    default:
      if (!store(s, at, &kZeroPage)) *wrong = "a fault inside commit";
      change(s, at, w.without_content().with(PageWord::kDirty).with_state(PageState::kNear));
      insert(s, at);
      s.pages[at].truth = kZeroPage;
      next_op(s, i);
      return true;
  }
}

// RangeOps::WriteBack.
bool HugeModel::store_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  unsigned at = first_of(i, t);
  PageWord w = word_of(s, at), before(t.seen);
  switch (t.pc) {
    case Pc::kStore:
      if (is_owned(w)) return false;
      if (!w.is(PageState::kNear) || !w.has(PageWord::kDirty) || w.is_free()) {
        next_op(s, i);
        return true;
      }
      t.seen = w.bits();
      t.frames = t.inside = 1;
      change(s, at, w.with_state(PageState::kEvicting).with_owner(kKept));
      t.pc = Pc::kStoreProtect;
      return true;
    case Pc::kStoreProtect:
      if (before.pins() == 0) s.pages[at].write_protected = 1;
      t.pc = Pc::kStoreWrite;
      return true;
    case Pc::kStoreWrite:
      s.pages[at].far = content_of(s, at);
      t.pc = Pc::kStoreReturn;
      return true;
    default: {
      if (!broken(BrokenHuge::kWriteBackKeepsHuge)) before = before.without(PageWord::kHuge);
      PageWord near = w.with(PageWord::kStored).with_owner(before.owner()).with_state(PageState::kNear);
      change(s, at, before.pins() > 0 ? near : near.without(PageWord::kDirty));
      if (!broken(BrokenHuge::kWriteBackDoesNotInsert)) insert(s, at);
      next_op(s, i);
      return true;
    }
  }
}

// Pager::prepare_fork and fork_in_parent: nothing else is at work (page_model explores how that is achieved).
bool HugeModel::fork_step(State& s, unsigned i) const {
  for (unsigned k = 0; k < kThreads; k++) {
    if ((k != i && s.threads[k].inside) || s.fetches[k].pc != FetchPc::kNone) return false;
  }
  for (const Out& e : s.out) {
    if (e.pc != OutPc::kIdle) return false;
  }
  if (s.page_out.pc != PagePc::kIdle) return false;
  for (unsigned p = 0; p < kPages; p++) {
    Page& page = s.pages[p];
    PageWord w = word_of(s, p);
    page.child_frame = page.frame;
    page.child_truth = page.frame == kNone ? kZeroPage : page.frames[page.frame];
    page.exclusive = 0;
    if (!w.is(PageState::kNear)) continue;
    if (w.pins() > 0 && w.writable()) {
      store(s, p, nullptr);
      continue;
    }
    page.write_protected = 1;
    change(s, p, w.with(PageWord::kCow));
  }
  s.forked = 1;
  next_op(s, i);
  return true;
}

}  // namespace farside::model
