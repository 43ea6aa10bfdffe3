#include "objects/evacuator.h"

#include "base/inject.h"

namespace farside::objects {
namespace {
constexpr uint64_t kRoundNs = 200 * 1000;  // between rounds while there is something to do: a membarrier each
constexpr uint64_t kIdleNs = 5 * 1000 * 1000;
}  // namespace

// ---- Phase 2: the path selector ----

// How much of what the segment holds was used since it came? Little: its objects are to come back one by one.
void Evacuator::leaving(std::span<const pager::PageIndex> pages) {
  SegmentTable& table = space_.table();
  for (PageIndex page : pages) {
    Segment& s = table[page];
    SegmentState state = s.word().state();
    if (state != SegmentState::kOpen && state != SegmentState::kHuge) continue;
    uint64_t touched = s.touched.exchange(0, std::memory_order_acq_rel);
    s.dirty.store(0, std::memory_order_release);
    if (state == SegmentState::kHuge || s.filling.load(std::memory_order_acquire) != 0) continue;
    if (space_.selector().as_page(s, touched) || !s.change(SegmentState::kOpen, SegmentState::kClosing)) continue;
    s.since.store(Epochs::now(), std::memory_order_release);
    space_.put_in_list(page);
  }
}

// ---- Rounds ----

// True: there is more to do soon.
bool Evacuator::round() {
  ObjectSpace::Busy busy(space_);
  collect();
  if (pending_.empty() && emptying_.empty()) return false;
  uint32_t oldest = space_.epochs().advance();
  size_t kept = 0;
  for (Pending& p : pending_) {
    if (advance_one(p, oldest)) pending_[kept++] = p;
  }
  pending_.resize(kept);
  kept = 0;
  for (Pending& p : emptying_) {
    if (evacuate(p)) emptying_[kept++] = p;
  }
  emptying_.resize(kept);
  return true;
}

void Evacuator::collect() {
  SegmentTable& table = space_.table();
  for (PageIndex page = space_.listed().take_all(); page != SegmentStack::kNone;) {
    PageIndex next = table[page].next;
    pending_.push_back({page, 0});
    page = next;
  }
}

// One step of a segment's way, when all scopes have ended that were open at the last one. False: it is out of hand.
bool Evacuator::advance_one(Pending& p, uint32_t oldest) {
  Segment& s = space_.table()[p.page];
  if (!is_before(s.since.load(std::memory_order_acquire), oldest)) return true;
  switch (s.word().state()) {
    case SegmentState::kClosing:
      close(p);
      return true;
    case SegmentState::kClosed:
      return empty(p);
    case SegmentState::kDead:
      s.state.store(static_cast<uint32_t>(SegmentState::kNone), std::memory_order_seq_cst);
      s.listed.store(0, std::memory_order_seq_cst);
      space_.counters().freed.fetch_add(1, std::memory_order_relaxed);
      space_.pool().give(p.page);
      return false;
    case SegmentState::kEmptying:
      look_after(p);
      return false;
    default:  // open again
      let_go(p.page);
      return false;
  }
}

// Phase 3: nobody gives licences any more, so those that are taken away stay away.
void Evacuator::close(Pending& p) {
  Segment& s = space_.table()[p.page];
  p.hot |= s.touched.exchange(0, std::memory_order_seq_cst);
  s.dirty.store(0, std::memory_order_seq_cst);
  if (s.change(SegmentState::kClosing, SegmentState::kClosed)) s.since.store(Epochs::now(), std::memory_order_release);
}

// Phase 4: no scope has a pointer into the segment, and none that holds it is left. From now on objects are taken out
// when they are used.
bool Evacuator::empty(Pending& p) {
  Segment& s = space_.table()[p.page];
  SegmentWord now = s.word();
  uint32_t bits = now.bits();
  if (now.state() != SegmentState::kClosed || now.holders() > 0) return true;
  if (!s.state.compare_exchange_strong(bits, now.with(SegmentState::kEmptying).bits(), std::memory_order_seq_cst))
    return true;
  space_.counters().object_path.fetch_add(1, std::memory_order_relaxed);
  auto address = reinterpret_cast<uint64_t>(space_.table().address_of(p.page));
  space_.pager().take_object_path(address);
  look_after(p);
  return false;
}

// Segments that are mostly garbage waste memory: near memory if they are near, the server's if they are far.
void Evacuator::look_after(const Pending& p) {
  Segment& s = space_.table()[p.page];
  unsigned live = s.live_units.load(std::memory_order_relaxed), used = s.used_units.load(std::memory_order_relaxed);
  auto address = reinterpret_cast<uint64_t>(space_.table().address_of(p.page));
  bool is_near = space_.pager().word(address).is(pager::PageState::kNear);
  uint64_t held = space_.pool().in_use() * kPageSize;
  bool scarce = held / 2 > space_.counters().bytes.load(std::memory_order_relaxed);
  if (is_near ? live < used / 2 : scarce && live < used / 4) emptying_.push_back(p);
  else let_go(p.page);
}

// Nobody looks at it until it is listed again. It may have died just before.
void Evacuator::let_go(PageIndex page) {
  Segment& s = space_.table()[page];
  s.listed.store(0, std::memory_order_seq_cst);
  if (s.word().state() == SegmentState::kDead) space_.put_in_list(page);
}

// Phase 5, for what is left. Objects that were in use when the segment was closed go together, and so do the others
// (Atlas 4.3). True: some could not be moved now.
bool Evacuator::evacuate(const Pending& p) {
  SegmentTable& table = space_.table();
  Segment& s = table[p.page];
  if (s.word().state() == SegmentState::kDead) {
    pending_.push_back(p);
    return false;
  }
  auto page_address = reinterpret_cast<uint64_t>(table.address_of(p.page));
  space_.pager().hint({.address = page_address, .bytes = kPageSize});
  bool busy = false;
  unsigned slots = s.slots.load(std::memory_order_relaxed);
  for (unsigned slot = 0; slot < slots; slot++) {
    if (!s.is_live(slot)) continue;
    Scope scope;
    busy |= space_.evacuate(p.page, slot, p.hot, hot_, cold_) == ObjectSpace::Moved::kBusy;
  }
  if (busy) return true;
  pending_.push_back(p);  // dead now, or a last object is just being taken
  return false;
}

// ---- The thread ----

int Evacuator::start() {
  SignalsBlocked blocked;  // the program's handlers have no business here; the thread inherits the mask
  stopping_.store(false);
  int error = pthread_create(
      &thread_, nullptr,
      [](void* self) -> void* {
        static_cast<Evacuator*>(self)->run();
        return nullptr;
      },
      this);
  started_ = error == 0;
  return error;
}

void Evacuator::stop() {
  if (!started_) return;
  stopping_.store(true);
  pthread_join(thread_, nullptr);
  started_ = false;
}

void Evacuator::run() {
  os::name_thread("far-evacuate");
  { Scope first; }
  while (!stopping_.load()) os::nanosleep_ns(round() ? kRoundNs : kIdleNs);
  space_.detach_thread();
  space_.pager().detach_thread();
}

}  // namespace farside::objects
