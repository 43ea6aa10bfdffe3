// The part of ObjectSpace that places objects and frees their places: logs, live bits, and objects larger than a page
// ("huge").
#include <cerrno>

#include "base/clock.h"
#include "base/inject.h"
#include "fiber/wait.h"
#include "objects/object_space.h"

namespace farside::objects {

bool ObjectSpace::place(ObjectLog& log, size_t bytes, size_t alignment, bool is_new, PtrWord* word) {
  if (log.place(table_, bytes, alignment, word)) return true;
  NoSwitch no_switch;
  seal(log);
  PageIndex page = structures_[log.structure()].pool.take(is_new);
  if (page == SegmentStack::kNone) return false;
  log.begin(table_, page);
  return log.place(table_, bytes, alignment, word);
}

// If there is garbage but no room, waits until the evacuator has made some, unless it frees nothing for kMaxNs, or for
// kMaxStoppedNs if moves are stopped meanwhile. Scopes that are younger than the garbage do not delay it; older ones,
// of other fibers of this worker, must get to run to end them. A fiber may continue on another worker afterwards, so
// the log is looked up again.
bool ObjectSpace::place_or_wait(const Placement& p, PtrWord* word) {
  constexpr uint64_t kMaxNs = 10ull * 1000 * 1000 * 1000, kMaxStoppedNs = 6 * kMaxNs;
  if (log_of(p.kind, p.structure).place(table_, p.bytes, p.alignment, word)) return true;
  if (p.restarts_scope) wait_for_frames(p.structure);
  auto try_place = [&] { return place(log_of(p.kind, p.structure), p.bytes, p.alignment, p.is_new, word); };
  if (try_place()) return true;
  if (thread_logs().handled) return false;  // it would wait for itself
  uint64_t start = now_ns(), freed = sum(Tally::kFreed);
  for (;;) {
    // Segments may be freed or used up at any time: only if garbage is rare before and after there was no room, waiting
    // is in vain.
    bool was_scarce = is_scarce();
    if (try_place()) return true;
    if (!was_scarce && !is_scarce()) return false;
    if (now_ns() - start >= (structures_.moves_are_stopped() ? kMaxStoppedNs : kMaxNs)) {
      if (sum(Tally::kFreed) == freed) return false;
      start = now_ns();
      freed = sum(Tally::kFreed);
    }
    pause(p.restarts_scope);
  }
}

// Before a new segment of a structure with an eviction handler is filled. What leaves there, leaves after grace
// periods: a fault that waited for a frame would delay them by its scope.
void ObjectSpace::wait_for_frames(unsigned structure) {
  constexpr uint64_t kMaxNs = 3'000'000;
  if (!structures_[structure].handler.is_set.load(std::memory_order_relaxed) || thread_logs().handled) return;
  if (!pager_.frames().scarce()) return;
  for (uint64_t end = now_ns() + kMaxNs; pager_.frames().scarce() && now_ns() < end;) pause(true);
}

// Lets other threads and fibers work, and the caller's scope pass.
void ObjectSpace::pause(bool restarts_scope) {
  constexpr uint64_t kFiberTurnNs = 20'000, kLookNs = 500'000;
  bool in_fiber = fibers::in_fiber();
  os::nanosleep_ns(in_fiber ? kFiberTurnNs : kLookNs);
  if (restarts_scope) Epochs::restart(Epochs::here());
  if (!in_fiber) return;
  Waiting waiting(*this);
  farside_fiber_yield();
}

bool ObjectSpace::is_scarce() const { return structures_.segments() * kPageSize / 2 > sum(Tally::kBytes); }

void ObjectSpace::seal(ObjectLog& log) {
  if (!log.has_segment()) return;
  PageIndex page = log.end();
  FARSIDE_CHECK(table_[page].filling.load(std::memory_order_relaxed) == 1);
  table_[page].filling.store(0, std::memory_order_release);
  if (log.is_unused()) pager_.paging().evict_first(table_.address_of(page));
  else clock_.watch(table_[page], page);
  remove_live_units(table_[page], page, 1);
}

// The object is complete: sets its live bit and its access bits.
void ObjectSpace::mark_live(PtrWord word) {
  Segment& segment = table_.of(word.address());
  uint64_t lines = lines_of(word.address(), word.bytes());
  FARSIDE_DCHECK(word.slot() < segment.slots.load(std::memory_order_relaxed) && !segment.is_live(word.slot()));
  segment.live[word.slot() / 64].fetch_or(uint64_t{1} << word.slot() % 64, std::memory_order_acq_rel);
  segment.read_bits.fetch_or(lines, std::memory_order_acq_rel);
  segment.write_bits.fetch_or(lines, std::memory_order_acq_rel);
}

void ObjectSpace::mark_dead(PtrWord word) {
  PageIndex page = table_.index_of(word.address());
  Segment& segment = table_[page];
  owner_overrides_.remove(page, word.slot(), segment);
  uint64_t bit = uint64_t{1} << word.slot() % 64;
  uint64_t live = segment.live[word.slot() / 64].fetch_and(~bit, std::memory_order_acq_rel);
  FARSIDE_CHECK((live & bit) != 0);
  remove_live_units(segment, page, word.units());
}

// Subtracts units of dead objects. A segment without live units is dead (phase 6); one that is mostly garbage is closed
// (phase 2).
void ObjectSpace::remove_live_units(Segment& segment, PageIndex page, size_t units) {
  auto amount = static_cast<uint16_t>(units);
  uint16_t before = segment.live_units.fetch_sub(amount, std::memory_order_acq_rel);
  FARSIDE_CHECK(before >= amount);
  auto left = static_cast<uint16_t>(before - amount);
  if (left == 0) {
    SegmentWord now = segment.word();
    if (now.state() == SegmentState::kEmptying) count(Tally::kObjectPath, -uint64_t{1});
    uint32_t bits = now.bits();
    while (!segment.state.compare_exchange_weak(bits, SegmentWord(bits).with(SegmentState::kDead).bits())) {}
    inject::pause("objects:dead");
  } else {
    unsigned used = segment.used_units.load(std::memory_order_relaxed);
    if (left >= used / 2 || segment.filling.load(std::memory_order_acquire) != 0) return;
    bool closes = segment.change(SegmentState::kOpen, SegmentState::kClosing);
    bool newly_garbage = left + units >= used / 2 && segment.word().state() == SegmentState::kEmptying;
    if (!closes && !newly_garbage) return;
  }
  put_in_list(page);
}

void ObjectSpace::put_in_list(PageIndex page) {
  if (table_[page].listed.exchange(1, std::memory_order_seq_cst) == 0) listed_.push(table_, page);
}

int ObjectSpace::make_huge(uint64_t* owner, const farside_object_type& type, void** object) {
  NoSwitch no_switch;
  size_t bytes = align_up(type.bytes, kPageSize);
  std::byte* memory = pager_.addresses().reserve(bytes, kPageSize);
  if (!memory || !pager_.addresses().commit(memory, bytes).ok()) {
    if (memory) pager_.addresses().release(memory, bytes);
    return -ENOMEM;
  }
  pager_.paging().mark_objects(memory, kPageSize);
  Segment& segment = table_.of(reinterpret_cast<uint64_t>(memory));
  FARSIDE_CHECK(segment.word().state() == SegmentState::kNone);
  segment.live[0].store(bytes, std::memory_order_relaxed);
  segment.read_bits.store(0, std::memory_order_relaxed);
  segment.write_bits.store(0, std::memory_order_relaxed);
  segment.state.store(static_cast<uint32_t>(SegmentState::kHuge), std::memory_order_seq_cst);
  store_owner(owner, PtrWord::make_huge(reinterpret_cast<uint64_t>(memory)));
  *object = memory;
  return 0;
}

void ObjectSpace::destroy_huge(uint64_t* owner, PtrWord word) {
  Segment& segment = table_.of(word.address());
  auto* memory = reinterpret_cast<std::byte*>(word.address());
  size_t bytes = segment.live[0].load(std::memory_order_relaxed);
  FARSIDE_CHECK(segment.word().state() == SegmentState::kHuge && is_aligned(bytes, kPageSize));
  store_owner(owner, PtrWord());
  segment.state.store(static_cast<uint32_t>(SegmentState::kNone), std::memory_order_seq_cst);
  segment.read_bits.store(0, std::memory_order_seq_cst);
  segment.write_bits.store(0, std::memory_order_seq_cst);
  NoSwitch no_switch;
  pager_.addresses().decommit(memory, bytes);
  pager_.addresses().release(memory, bytes);
}

}  // namespace farside::objects
