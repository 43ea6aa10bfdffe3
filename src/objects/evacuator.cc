#include "objects/evacuator.h"

#include <algorithm>

#include "base/inject.h"

namespace farside::objects {
namespace {
constexpr uint64_t kRoundNs = 200 * 1000;  // between rounds while there is work; each round costs a membarrier
constexpr uint64_t kIdleNs = 5 * 1000 * 1000;
constexpr size_t kSweep = 1024;         // segments that a round of a sweep examines
constexpr unsigned kPauseRounds = 200;  // rounds between two laps if the first reclaimed nothing
constexpr unsigned kSoonRounds = 20;    // a page that could not leave in so many rounds may stay long
}  // namespace

Evacuator::~Evacuator() { stop(); }

// ---- Phase 2: the path selector ----

// Decides by the lines that were used since the segment was fetched how it is fetched next. If few were, it is closed,
// so that its objects are fetched one by one.
void Evacuator::on_evict(std::span<const pager::PageIndex> pages) {
  SegmentTable& table = space_.table();
  space_.clock().add_evictions(pages.size());
  for (PageIndex page : pages) {
    Segment& s = table[page];
    SegmentState state = s.word().state();
    if (state != SegmentState::kOpen && state != SegmentState::kHuge) continue;
    uint64_t used_lines = s.read_bits.exchange(0, std::memory_order_acq_rel);
    used_lines |= table.taken_bits(page).exchange(0, std::memory_order_relaxed);
    s.write_bits.store(0, std::memory_order_release);
    Structure& structure = space_.structures()[s.structure.load(std::memory_order_relaxed)];
    if (structure.tracks_evictions) structure.evicted.push(page);
    if (state == SegmentState::kHuge || s.filling.load(std::memory_order_acquire) != 0) continue;
    if (space_.selector().as_page(s, used_lines) || !s.change(SegmentState::kOpen, SegmentState::kClosing)) continue;
    space_.put_in_list(page);
  }
}

// A page of a structure with an eviction handler leaves when its segment is emptying, so that no pointer into it
// exists, and the handler has been called for all of its objects.
bool Evacuator::may_evict(PageIndex page) {
  Segment& s = space_.table()[page];
  if (!space_.structures()[s.structure.load(std::memory_order_relaxed)].handler.is_set.load(std::memory_order_acquire))
    return true;
  if (s.leave.load(std::memory_order_acquire) == static_cast<uint8_t>(Leave::kYes)) return true;
  SegmentState state = s.word().state();
  if (state == SegmentState::kNone || s.filling.load(std::memory_order_acquire) != 0) return false;
  auto no = static_cast<uint8_t>(Leave::kNo);
  if (s.leave.compare_exchange_strong(no, static_cast<uint8_t>(Leave::kAsked))) {
    asked_.fetch_add(1);
    space_.clock().add_evictions(1);
  }
  s.change(SegmentState::kOpen, SegmentState::kClosing);
  space_.put_in_list(page);
  woken_.wake_all();
  return false;
}

// ---- Rounds ----

// True: another round is due soon.
bool Evacuator::round() {
  ObjectSpace::Busy busy(space_);
  space_.clock().advance(space_.table(), [this](PageIndex page) { return take_access_bits(page); });
  sweep();
  asked_.store(0);
  collect();
  if (pending_.empty() && emptying_.empty()) return false;
  uint32_t oldest = space_.epochs().advance();
  size_t kept = 0;
  for (Pending& p : pending_) {
    if (advance_one(p, oldest)) pending_[kept++] = p;
  }
  pending_.resize(kept);
  evacuate();
  call_handlers();
  count_leaving();
  return true;
}

// False: it is not an open, near segment. The path selector still counts the lines.
bool Evacuator::take_access_bits(PageIndex page) {
  SegmentTable& table = space_.table();
  Segment& s = table[page];
  pager::PageWord word = space_.pager().table().word(reinterpret_cast<uint64_t>(table.address_of(page)));
  if (s.word().state() != SegmentState::kOpen || !word.is(pager::PageState::kNear)) return false;
  uint64_t taken = s.read_bits.exchange(0, std::memory_order_acq_rel);
  s.write_bits.store(0, std::memory_order_release);
  table.taken_bits(page).fetch_or(taken, std::memory_order_relaxed);
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

// Advances a segment by one state, if all scopes have ended that were open at its last change. False: the segment is
// not pending any more. Other threads change states, but cannot note the epoch at the same time: so a grace period
// begins when the state is seen here. It can return to the same state only through others that are seen here.
bool Evacuator::advance_one(Pending& p, uint32_t oldest) {
  SegmentState state = space_.table()[p.page].word().state();
  if (state != p.seen) {
    p.seen = state;
    p.since = Epochs::now();
  }
  bool has_passed = is_before(p.since, oldest);
  switch (state) {
    case SegmentState::kClosing:
      if (has_passed) close(p);
      return true;
    case SegmentState::kClosed:
      return !has_passed || empty(p);
    case SegmentState::kDead:
      if (has_passed) give_back(p.page);
      return !has_passed;
    case SegmentState::kEmptying:
      queue(p);
      return false;
    default:  // open again
      unlist(p.page);
      return false;
  }
}

// Phase 6: no thread has an old word that refers to the segment.
void Evacuator::give_back(PageIndex page) {
  Segment& s = space_.table()[page];
  FARSIDE_CHECK(s.live_units.load(std::memory_order_relaxed) == 0 && s.word().holders() == 0);
  FARSIDE_CHECK(s.owner_overrides.load(std::memory_order_relaxed) == 0);
  s.state.store(static_cast<uint32_t>(SegmentState::kNone), std::memory_order_seq_cst);
  s.listed.store(0, std::memory_order_seq_cst);
  space_.count(Tally::kFreed, 1);
  space_.structures()[s.structure.load(std::memory_order_relaxed)].pool.give(page);
}

// Phase 3: no thread sets access bits any more, so the bits that are cleared stay cleared.
void Evacuator::close(Pending& p) {
  Segment& s = space_.table()[p.page];
  FARSIDE_DCHECK(s.listed.load(std::memory_order_relaxed) == 1);
  p.hot |= s.read_bits.exchange(0, std::memory_order_seq_cst);
  s.write_bits.store(0, std::memory_order_seq_cst);
  s.change(SegmentState::kClosing, SegmentState::kClosed);
}

// Phase 4: no scope has a pointer into the segment, and none holds it. From now on objects are moved out of it when
// they are used. True: the segment stays pending.
bool Evacuator::empty(Pending& p) {
  Segment& s = space_.table()[p.page];
  SegmentWord now = s.word();
  uint32_t bits = now.bits();
  if (now.state() != SegmentState::kClosed || now.holders() > 0) return true;
  if (!s.state.compare_exchange_strong(bits, now.with(SegmentState::kEmptying).bits(), std::memory_order_seq_cst))
    return true;
  space_.count(Tally::kObjectPath, 1);
  auto address = reinterpret_cast<uint64_t>(space_.table().address_of(p.page));
  space_.pager().paging().use_object_path(address);
  queue(p);
  return false;
}

// Queues an emptying segment for evacuation if it is mostly garbage, and near or memory is scarce: near segments waste
// local memory, far ones memory of the server. Or for its eviction handler, if evictors have asked for the page. Else
// removes it from the list.
void Evacuator::queue(const Pending& p) {
  Segment& s = space_.table()[p.page];
  auto address = reinterpret_cast<uint64_t>(space_.table().address_of(p.page));
  bool is_near = space_.pager().table().word(address).is(pager::PageState::kNear);
  if (s.is_mostly_garbage() && (is_near || space_.is_scarce())) emptying_.push_back(p);
  else if (is_asked_for(s)) handled_.push_back(p);
  else unlist(p.page);
}

bool Evacuator::is_asked_for(const Segment& s) {
  return s.leave.load(std::memory_order_acquire) == static_cast<uint8_t>(Leave::kAsked);
}

// When far memory is scarce, searches all segments for garbage, some at a time: segments that were passed over while
// far memory was plentiful, and those whose objects died while their log still filled them.
void Evacuator::sweep() {
  if (pause_rounds_ > 0) pause_rounds_--;
  if (pause_rounds_ > 0 || !space_.is_scarce()) return;
  PageIndex pages[kSweep];
  size_t count = space_.structures()[swept_structure_].pool.list(swept_, pages);
  swept_ += count;
  for (size_t i = 0; i < count; i++) reclaimed_ |= reclaim(pages[i]);
  if (count > 0) return;
  swept_ = 0;
  if (++swept_structure_ < space_.structures().count()) return;
  swept_structure_ = 0;
  pause_rounds_ = reclaimed_ ? 0 : kPauseRounds;
  reclaimed_ = false;
}

bool Evacuator::reclaim(PageIndex page) {
  Segment& s = space_.table()[page];
  SegmentState state = s.word().state();
  if (state != SegmentState::kOpen && state != SegmentState::kEmptying) return false;
  if (!s.is_mostly_garbage() || s.filling.load(std::memory_order_acquire) != 0) return false;
  if (s.listed.load(std::memory_order_relaxed) != 0) return false;
  s.change(SegmentState::kOpen, SegmentState::kClosing);
  space_.put_in_list(page);
  return true;
}

// A segment that cannot leave for long is left to itself, until evictors ask for it again.
void Evacuator::call_handlers() {
  for (Pending& p : handled_) {
    Segment& s = space_.table()[p.page];
    bool all = space_.call_handler(p.page, p.permitted);
    if (s.word().state() == SegmentState::kDead || (!all && p.asked_rounds < kSoonRounds)) {
      pending_.push_back(p);
      continue;
    }
    s.leave.store(static_cast<uint8_t>(all ? Leave::kYes : Leave::kNo), std::memory_order_release);
    unlist(p.page);
    if (all) space_.pager().paging().evict_first(space_.table().address_of(p.page), kPageSize);
  }
  handled_.clear();
}

void Evacuator::count_leaving() {
  size_t count = 0;
  for (Pending& p : pending_) {
    bool asked = is_asked_for(space_.table()[p.page]);
    if (asked && p.asked_rounds < kSoonRounds && ++p.asked_rounds < kSoonRounds) count++;
  }
  leaving_soon_.store(count);
}

// The segment is not examined until it is listed again. It may have died just before.
void Evacuator::unlist(PageIndex page) {
  Segment& s = space_.table()[page];
  FARSIDE_DCHECK(s.listed.load(std::memory_order_relaxed) == 1);
  s.listed.store(0, std::memory_order_seq_cst);
  if (s.word().state() == SegmentState::kDead) space_.put_in_list(page);
}

// Phase 5, for the objects that are left. Those that were in use when the segment was closed are moved to one log, the
// others to another (Atlas 4.3). Segments that are empty now will be dead; the others are examined again.
void Evacuator::evacuate() {
  List left;
  EmptiedSegment batch[ObjectSpace::kMaxEmptied];
  for (size_t first = 0; first < emptying_.size(); first += std::size(batch)) {
    size_t count = 0, end = std::min(emptying_.size(), first + std::size(batch));
    for (size_t i = first; i < end; i++) {
      const Pending& p = emptying_[i];
      if (space_.table()[p.page].word().state() == SegmentState::kDead) pending_.push_back(p);
      else batch[count++] = {p.page, p.hot, &survivors(p.page).hot, &survivors(p.page).cold, false};
    }
    if (count > 0) space_.evacuate({batch, count});
    for (size_t i = 0; i < count; i++) (batch[i].busy ? left : pending_).push_back({batch[i].page, batch[i].hot_lines});
  }
  emptying_.swap(left);
}

Evacuator::Survivors& Evacuator::survivors(PageIndex page) {
  unsigned structure = space_.table()[page].structure.load(std::memory_order_relaxed);
  if (!survivors_[structure]) survivors_[structure] = std::make_unique<Survivors>(structure);
  return *survivors_[structure];
}

// ---- The thread ----

int Evacuator::start() {
  SignalsBlocked blocked;  // inherited by the thread: no handler of the program runs on it
  stopping_.store(false);
  woken_.reset_in_child();
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
  while (!stopping_.load()) {
    uint32_t seen = woken_.value();
    if (round()) os::nanosleep_ns(kRoundNs);
    else woken_.wait(seen, kIdleNs);
  }
  space_.detach_thread();
  space_.pager().paging().detach_thread();
}

}  // namespace farside::objects
