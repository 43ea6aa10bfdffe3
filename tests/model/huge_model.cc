#include "huge_model.h"

#include <bit>

namespace farside::model {

using pager::PageState;
using pager::PageWord;

HugeModel::State HugeModel::start() const {
  State s;
  for (unsigned p = 0; p < kPages; p++) {
    Page& page = s.pages[p];
    bool far = scenario_.start[p] == 'f';
    page.word =
        PageWord().with_state(far ? PageState::kFar : PageState::kUntouched).with(far ? PageWord::kStored : 0).bits();
    if (far) page.far = page.truth = start_value(p);
  }
  for (uint8_t slot = 0; slot < scenario_.pool; slot++) {
    for (unsigned p = 0; p < kPages; p++) s.slots[slot][p] = new_frame(s, p, kForgotten);
    s.free_slots = static_cast<uint8_t>(s.free_slots | 1 << slot);
    s.used += kPages;
  }
  for (unsigned i = 0; i < scenario_.threads.size(); i++) begin_op(s.threads[i], i);
  return s;
}

HugeModel::Pc HugeModel::begin_of(char kind) const {
  switch (kind) {
    case 'k':
      return Pc::kPin;
    case 'd':
      return Pc::kOwn;
    case 'z':
      return Pc::kFree;
    case 'b':
      return Pc::kStore;
    case 's':
    case 't':
    case 'p':
    case 'a':
    case 'f':
      return Pc::kLook;
    case 'y':
      return Pc::kFork;
    case 'j':
      return Pc::kJoin;
    default:
      return Pc::kAccess;
  }
}

unsigned HugeModel::first_of(unsigned i, const Thread& t) const {
  return scenario_.threads[i][t.op * 2 + 1] == '1' ? 1 : 0;
}

unsigned HugeModel::end_of(unsigned i, const Thread& t) const {
  return scenario_.threads[i][t.op * 2 + 1] == '0' ? 1 : kPages;
}

void HugeModel::begin_op(Thread& t, unsigned i) const {
  uint8_t op = t.op;
  t = Thread();
  t.op = op;
  if (op * 2u >= scenario_.threads[i].size()) return;
  t.pc = begin_of(kind_of(i, t));
  t.at = static_cast<uint8_t>(first_of(i, t));
}

void HugeModel::next_op(State& s, unsigned i) const {
  s.threads[i].op++;
  begin_op(s.threads[i], i);
}

// ---- Words and queues ----

void HugeModel::change(State& s, unsigned page, PageWord next) {
  if (!word_of(s, page).may_become(next)) s.impossible = 1;
  s.pages[page].word = next.bits();
}

// Policy::insert. The flag stands for the entry.
void HugeModel::insert(State& s, unsigned page) { change(s, page, word_of(s, page).with(PageWord::kQueued)); }

// ---- The kernel ----

unsigned HugeModel::references(const State& s, unsigned page, uint8_t frame) {
  unsigned count = (s.pages[page].frame == frame) + (s.pages[page].child_frame == frame);
  for (const auto& slot : s.slots) count += slot[page] == frame;
  return count + (s.page_out.page == page && s.page_out.pipe == frame);
}

uint8_t HugeModel::new_frame(State& s, unsigned page, Value content) {
  for (uint8_t f = 0; f < kFrames; f++) {
    if (references(s, page, f) > 0) continue;
    s.pages[page].frames[f] = content;
    return f;
  }
  return kNone;  // impossible: there are more frames than references
}

// UFFDIO_COPY, which leaves a page that is present as it is.
void HugeModel::map(State& s, unsigned page, Value content, bool write_protect) {
  Page& p = s.pages[page];
  if (p.frame != kNone) return;
  p.frame = new_frame(s, page, content);
  p.write_protected = write_protect;
  p.exclusive = 1;
}

// By the program or in a system call. value nullptr: a store that changes nothing. False: it faults.
bool HugeModel::store(State& s, unsigned page, const Value* value) {
  Page& p = s.pages[page];
  if (p.frame == kNone || p.write_protected) return false;
  if (!p.exclusive && references(s, page, p.frame) > 1) p.frame = new_frame(s, page, p.frames[p.frame]);
  p.exclusive = 1;
  if (value) p.frames[p.frame] = *value;
  return true;
}

HugeModel::Value HugeModel::content_of(const State& s, unsigned page) {
  const Page& p = s.pages[page];
  return p.frame == kNone ? kForgotten : p.frames[p.frame];
}

// What the next fetch will find, if the page leaves without being written.
bool HugeModel::is_same_as_far(const State& s, unsigned page, Value content) {
  return content == (word_of(s, page).has(PageWord::kStored) ? s.pages[page].far : kZeroPage);
}

// ---- Threads ----

bool HugeModel::thread_step(State& s, unsigned i, const char** wrong) const {
  switch (s.threads[i].pc) {
    case Pc::kDone:
      return false;
    case Pc::kAccess:
      return access_step(s, i, wrong);
    case Pc::kFault:
      return fault_step(s, i);
    case Pc::kMap:
    case Pc::kPublish:
      return fetch_page_step(s, i);
    case Pc::kLift:
    case Pc::kLifted:
      return upgrade_step(s, i);
    case Pc::kOwnAll:
    case Pc::kLiftRun:
    case Pc::kClearRun:
      return upgrade_all_step(s, i);
    case Pc::kPin:
    case Pc::kKernelWrite:
    case Pc::kUnpin:
      return pin_step(s, i, wrong);
    case Pc::kOwn:
    case Pc::kDrop:
    case Pc::kDropFinish:
      return range_step(s, i);
    case Pc::kFree:
    case Pc::kKeep:
    case Pc::kTakeBack:
    case Pc::kZero:
      return free_step(s, i, wrong);
    case Pc::kStore:
    case Pc::kStoreProtect:
    case Pc::kStoreWrite:
    case Pc::kStoreReturn:
      return store_step(s, i);
    case Pc::kFork:
      return fork_step(s, i);
    case Pc::kJoin:
      for (unsigned k = 0; k < kThreads; k++) {
        if (k != i && s.threads[k].pc != Pc::kDone) return false;
      }
      next_op(s, i);
      return true;
    case Pc::kStreamWait:
      if (s.fetches[i].pc != FetchPc::kNone) return false;
      next_op(s, i);
      return true;
    default:
      return start_step(s, i);
  }
}

bool HugeModel::access_step(State& s, unsigned i, const char** wrong) const {
  Thread& t = s.threads[i];
  unsigned at = first_of(i, t);
  Page& page = s.pages[at];
  char kind = kind_of(i, t);
  bool write = kind != 'r';
  Value value = kind == 'o' ? start_value(at) : static_cast<Value>(16 + i * 32 + t.op);
  t.inside = 0;
  if (write ? !store(s, at, &value) : page.frame == kNone) {
    t.pc = Pc::kFault;
    return true;
  }
  if (write) page.truth = value;
  else if (content_of(s, at) != page.truth) *wrong = "a read returned an old value";
  next_op(s, i);
  return true;
}

// FaultPath::resolve, up to the change of the word.
bool HugeModel::fault_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  char kind = kind_of(i, t);
  unsigned at = first_of(i, t);
  PageWord w = word_of(s, at);
  if (is_owned(w)) return false;
  if (w.is(PageState::kNear) && (kind == 'r' || w.writable())) {
    t.pc = begin_of(kind);
    return true;
  }
  t.inside = 1;
  if (!w.is(PageState::kNear)) {
    change(s, at, w.with_state(PageState::kFetching).with_owner(static_cast<uint16_t>(i + 1)));
    s.used++;
    t.frames = 1;
    t.pc = Pc::kMap;
  } else if (kind == 'x' && w.has(PageWord::kHuge)) {
    t.at = t.mask = 0;
    for (Page& p : s.pages) {
      if (broken(BrokenHuge::kLiftBeforeOwn)) p.write_protected = 0;
    }
    t.pc = Pc::kOwnAll;
  } else {
    change(s, at, w.with(PageWord::kDirty | PageWord::kUpgrading).without(PageWord::kCow));
    t.pc = Pc::kLift;
  }
  return true;
}

// FetchPath: maps and publishes one page.
bool HugeModel::fetch_page_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  unsigned at = first_of(i, t);
  bool write = kind_of(i, t) != 'r';
  PageWord w = word_of(s, at);
  if (t.pc == Pc::kMap) {
    map(s, at, w.has(PageWord::kStored) ? s.pages[at].far : kZeroPage, !write);
    t.pc = Pc::kPublish;
    return true;
  }
  change(s, at, w.with_state(PageState::kNear).with_owner(0).with(write ? PageWord::kDirty : 0));
  insert(s, at);
  t.frames = 0;
  t.pc = begin_of(kind_of(i, t));
  t.inside = 0;
  return true;
}

// FaultPath::upgrade.
bool HugeModel::upgrade_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  unsigned at = first_of(i, t);
  if (t.pc == Pc::kLift) {
    s.pages[at].write_protected = 0;
    store(s, at, nullptr);
    t.pc = Pc::kLifted;
    return true;
  }
  change(s, at, word_of(s, at).without(PageWord::kUpgrading));
  t.pc = begin_of(kind_of(i, t));
  t.inside = 0;
  return true;
}

// HugePath::upgrade.
bool HugeModel::upgrade_all_step(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  if (t.pc == Pc::kOwnAll) {
    PageWord w = t.at < kPages ? word_of(s, t.at) : PageWord();
    bool can_own = w.is(PageState::kNear) && w.has(PageWord::kHuge) && !w.has(PageWord::kUpgrading) && !w.writable() &&
                   !w.is_free();
    if (can_own) {
      change(s, t.at, w.with(PageWord::kDirty | PageWord::kUpgrading).without(PageWord::kCow));
      t.mask = static_cast<uint8_t>(t.mask | 1 << t.at++);
    } else if (t.mask != 0) {
      t.pc = Pc::kLiftRun;
    } else if (++t.at >= kPages) {
      t.at = static_cast<uint8_t>(first_of(i, t));
      t.pc = Pc::kAccess;
    }
    return true;
  }
  if (t.pc == Pc::kLiftRun) {
    for (unsigned p = 0; p < kPages; p++) {
      if (!(t.mask >> p & 1)) continue;
      s.pages[p].write_protected = 0;
      store(s, p, nullptr);
    }
    t.pc = Pc::kClearRun;
    return true;
  }
  auto p = static_cast<unsigned>(std::countr_zero(t.mask));
  change(s, p, word_of(s, p).without(PageWord::kUpgrading));
  t.mask = static_cast<uint8_t>(t.mask & ~(1u << p));
  if (t.mask == 0) t.pc = Pc::kOwnAll;
  return true;
}

bool HugeModel::step(State& s, unsigned actor, const char** wrong) const {
  bool moved;
  if (actor < kFetchActors) {
    moved = actor < scenario_.threads.size() && thread_step(s, actor, wrong);
  } else if (actor < kOutActors) {
    unsigned k = actor - kFetchActors;
    moved = in_step(s, k / 3, static_cast<Kernel>(k % 3), wrong);
  } else if (actor < kPageActors) {
    unsigned k = actor - kOutActors;
    moved = k / 3 < scenario_.huge_evictors && out_step(s, s.out[k / 3], static_cast<Kernel>(k % 3), wrong);
  } else {
    moved = scenario_.evicts_pages && page_out_step(s, actor - kPageActors, wrong);
  }
  for (unsigned p = 0; moved && p < kPages; p++) {
    for (uint8_t f = 0; f < kFrames; f++) {
      if (references(s, p, f) == 0) s.pages[p].frames[f] = 0;  // so that equal states have equal bytes
    }
  }
  return moved;
}

// ---- Invariants ----

// Q: the page has an entry, or a thread is at work that will add one.
bool HugeModel::is_covered(const State& s, unsigned page) const {
  PageWord w = word_of(s, page);
  if (w.has(PageWord::kQueued) || (s.page_out.pc != PagePc::kIdle && s.page_out.page == page)) return true;
  bool at_work = false;
  for (const Out& e : s.out) at_work |= e.pc != OutPc::kIdle;
  for (const Fetch& f : s.fetches) at_work |= f.pc >= FetchPc::kPublish && f.pc <= FetchPc::kEnqueue;
  return at_work || (w.has(PageWord::kHuge) && s.entries > 0);
}

const char* HugeModel::check(const State& s) const {
  if (s.impossible) return "an impossible change of a page word";
  auto counted = static_cast<unsigned>(std::popcount(s.free_slots)) * kPages;
  for (unsigned p = 0; p < kPages; p++) {
    const Page& page = s.pages[p];
    PageWord w = word_of(s, p);
    if (!w.is_valid()) return "an impossible page word";
    counted += w.is(PageState::kNear);
    if (w.is(PageState::kNear) && !is_covered(s, p)) return "Q: a near page is in no queue and can never be evicted";
    bool child_differs = page.child_frame != kNone && page.frames[page.child_frame] != page.child_truth;
    if (child_differs) return "the child does not see the memory as it was at the fork";
  }
  for (const Thread& t : s.threads) counted += t.frames;
  for (const Fetch& f : s.fetches) counted += f.frames;
  for (const Out& e : s.out) counted += e.frames;
  counted += s.page_out.frames;
  return counted == s.used ? nullptr : "F: a frame was leaked or counted twice";
}

bool HugeModel::done(const State& s) const {
  for (unsigned i = 0; i < kThreads; i++) {
    if (s.threads[i].pc != Pc::kDone || s.fetches[i].pc != FetchPc::kNone) return false;
  }
  for (const Out& e : s.out) {
    if (e.pc != OutPc::kIdle) return false;
  }
  return s.page_out.pc == PagePc::kIdle;
}

const char* HugeModel::check_done(const State& s) const {
  for (unsigned p = 0; p < kPages; p++) {
    const Page& page = s.pages[p];
    PageWord w = word_of(s, p);
    Value now = page.frame != kNone ? content_of(s, p) : w.is(PageState::kFar) ? page.far : kZeroPage;
    if (now != page.truth) return "W: a write was lost";
    if (w.is(PageState::kNear) != (page.frame != kNone)) return "the word and the kernel's mapping disagree";
    if (w.is(PageState::kNear) && w.writable() == (page.write_protected != 0))
      return "the word and the kernel's protection disagree";
    if (w.pins() > 0) return "a page stayed pinned";
  }
  if (s.queued != (s.entries > 0) || s.entries > 1) return "the huge page's flag and the queue disagree";
  return s.taken_slots == 0 ? nullptr : "a slot of the pool was leaked";
}

std::string HugeModel::describe(const State& s, unsigned actor) const {
  auto number = [](auto v) { return std::to_string(static_cast<unsigned>(v)); };
  std::string text;
  if (actor < kFetchActors) {
    text = "thread " + number(actor) + " to pc " + number(s.threads[actor].pc);
  } else if (actor < kOutActors) {
    text = "fetch " + number((actor - kFetchActors) / 3) + " to pc " + number(s.fetches[(actor - kFetchActors) / 3].pc);
  } else if (actor < kPageActors) {
    text = "huge page evictor to pc " + number(s.out[(actor - kOutActors) / 3].pc);
  } else {
    text = "page evictor to pc " + number(s.page_out.pc);
  }
  for (unsigned p = 0; p < kPages; p++) {
    PageWord w = word_of(s, p);
    const Page& page = s.pages[p];
    auto flag = [&](uint64_t f, const char* name) { return std::string(w.has(f) ? name : ""); };
    text += "; page " + number(p) + " state " + number(w.state()) + flag(PageWord::kDirty, " dirty") +
            flag(PageWord::kStored, " stored") + flag(PageWord::kCow, " cow") + flag(PageWord::kHuge, " huge page") +
            flag(PageWord::kUpgrading, " upgrading") + flag(PageWord::kQueued, " queued") +
            (page.frame == kNone ? " absent" : " holds " + number(content_of(s, p))) +
            (page.write_protected ? " protected" : "") + " truth " + number(page.truth) + " far " + number(page.far);
  }
  return text + "; entries " + number(s.entries) + " flag " + number(s.queued) + " frames " + number(s.used);
}

}  // namespace farside::model
