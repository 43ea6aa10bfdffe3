#include "pager/extent_evictor.h"

#include <algorithm>
#include <cerrno>

#include "base/inject.h"
#include "base/log.h"
#include "pager/evictor.h"
#include "pager/extents/content_sums.h"
#include "pager/pages/budget.h"
#include "pager/pages/frames.h"
#include "pager/policy/policy.h"
#include "pager/space/far_space.h"

namespace farside::pager {

bool ExtentEvictor::is_ready() const { return channel_ && c_.pool.is_open() && in_flight_ < kMaxInFlight; }

// ---- Which extent ----

bool ExtentEvictor::provide_frame() {
  constexpr uint64_t kSpareShare = 8;
  if (!c_.pool.wants_frame() || !is_ready()) return false;
  if (grow(c_.frames.limit() / kSpareShare)) return true;  // near memory is not short
  ExtentIndex extent;
  ExtentQueue::Kind kind;
  if (c_.extent_queue.pop_surplus(&extent, &kind)) return evict(extent, kind);
  if (pop_main(kExtentPages, &extent)) return evict(extent, ExtentQueue::kMain);
  return grow(c_.frames.low_water());
}

bool ExtentEvictor::grow(uint64_t spare) {
  Slot slot = c_.pool.grow(spare);
  if (slot < 0) return false;
  c_.pool.put(slot);
  c_.frames.released().wake_all();
  return true;
}

bool ExtentEvictor::free_frames(size_t pages) {
  if (!c_.pool.is_open() && break_up_any()) return true;
  if (!is_ready()) return false;
  if (c_.pool.free() > c_.pool.target()) {
    Slot slot = c_.pool.take();
    if (slot >= 0) c_.pool.drop(slot);
    return slot >= 0;
  }
  ExtentIndex extent;
  ExtentQueue::Kind kind;
  if (c_.extent_queue.pop_surplus(&extent, &kind)) return evict(extent, kind);
  return pop_main(pages, &extent) && evict(extent, ExtentQueue::kMain);
}

bool ExtentEvictor::free_any() {
  if (!is_ready()) return false;
  ExtentIndex extent;
  ExtentQueue::Kind kind;
  return c_.extent_queue.pop_any(&extent, &kind) && evict(extent, kind);
}

// There are no frames in this process, but near extents: a forked child has them of its parent.
bool ExtentEvictor::break_up_any() {
  ExtentIndex extent;
  ExtentQueue::Kind kind;
  if (!c_.extent_queue.pop_any(&extent, &kind)) return false;
  break_up(extent);
  return true;
}

// Pages of the policy's queues and extents of the main queue leave in proportion to how many there are.
bool ExtentEvictor::pop_main(size_t pages, ExtentIndex* extent) {
  uint64_t in_extents = c_.extent_queue.size(ExtentQueue::kMain) * uint64_t{kExtentPages};
  if (in_extents == 0) return false;
  credit_ += pages * in_extents / (in_extents + c_.policy.queued());
  if (credit_ < kExtentPages) return false;
  credit_ = std::min<uint64_t>(credit_ - kExtentPages, kExtentPages);
  return c_.extent_queue.pop(ExtentQueue::kMain, extent);
}

// ---- Eviction ----

// The extent has no entry in the queue any more. True: there was progress, or its pages are in the policy's queues now.
bool ExtentEvictor::evict(ExtentIndex extent, ExtentQueue::Kind kind) {
  uint64_t start = ticks();
  ExtentBits claimed;
  bool may_retry = true;
  unsigned count = claim(extent, &claimed, &may_retry);
  inject::pause("extent:evicting");
  Slot slot = count == kExtentPages ? move_out(extent) : -1;
  uint64_t moved = ticks();
  counters_.add(Counter::kUnmapTicks, moved - start);
  if (slot < 0) {
    unclaim(extent, claimed);
    if (count < kExtentPages && may_retry) c_.extent_queue.push(extent, kind);
    else break_up(extent);
    return count == kExtentPages || !may_retry;
  }
  Leaving& leaving = *std::find_if(leaving_, leaving_ + kMaxInFlight, [](const Leaving& l) { return l.is_free(); });
  leaving.extent = extent;
  leaving.slot = slot;
  leaving.writes = leaving.acknowledged = 0;
  leaving.submitted = false;
  in_flight_++;
  counters_.add(Counter::kExtentsEvicted);
  counters_.add(Counter::kEvictions, kExtentPages);
  c_.frames.count_evicted(kExtentPages);
  write(leaving, find_changed(leaving));
  counters_.add(Counter::kWriteTicks, ticks() - moved);
  return true;
}

// may_retry: all pages that could not be claimed are near, and will be free soon: pinned, or being made writable.
unsigned ExtentEvictor::claim(ExtentIndex extent, ExtentBits* claimed, bool* may_retry) {
  unsigned count = 0;
  for (unsigned i = 0; i < kExtentPages; i++) {
    PageTable::Entry page = c_.table[first_page(extent) + i];
    PageWord word = page.load();
    bool done = false;
    while (!done && word.is(PageState::kNear) && word.pins() == 0 && !word.has(PageWord::kUpgrading) &&
           !word.has(PageWord::kObjects)) {
      done = page.try_change(word, word.with_state(PageState::kEvicting));
    }
    if (done) claimed->set(i), count++;
    else if (!word.is(PageState::kNear) || word.has(PageWord::kObjects)) *may_retry = false;
  }
  return count;
}

// All pages are claimed. Returns the slot with the frame, or -1.
Slot ExtentEvictor::move_out(ExtentIndex extent) {
  std::byte* address = c_.table.address_of(first_page(extent));
  if (!c_.space.is_huge(address, kExtentBytes)) return -1;
  Slot slot = c_.pool.take_empty();
  if (slot < 0) return -1;
  std::byte* to = c_.pool.address_of(slot);
  long moved = c_.space.move(to, address, kExtentBytes);
  if (moved == static_cast<long>(kExtentBytes)) return slot;
  if (moved <= 0) {
    c_.pool.put_empty(slot);
    return -1;
  }
  // The kernel split the huge page meanwhile, and stopped in the middle. What it moves back is mapped writable.
  auto bytes = static_cast<size_t>(moved);
  for (unsigned i = 0; i < bytes / kPageSize; i++) {
    c_.table[first_page(extent) + i].update(
        [](PageWord w) { return w.without(PageWord::kCow).with(PageWord::kDirty); });
  }
  long back = c_.space.move(address, to, bytes);
  size_t done = back > 0 ? static_cast<size_t>(back) : 0;
  if (int error = done < bytes ? c_.space.map(address + done, to + done, bytes - done, false) : 0)
    die("internal error: cannot map page {} (error {})", first_page(extent), -error);
  c_.pool.drop_copied(slot);
  return -1;
}

// A page without kExtent is in a queue of the policy, but an evictor may have taken it out of there meanwhile.
void ExtentEvictor::unclaim(ExtentIndex extent, const ExtentBits& claimed) {
  for (unsigned i = 0; i < kExtentPages; i++) {
    if (!claimed.has(i)) continue;
    PageIndex page = first_page(extent) + i;
    PageWord old = c_.table[page].update([](PageWord w) { return w.with_state(PageState::kNear); });
    FARSIDE_CHECK(old.is(PageState::kEvicting));
    if (!old.has(PageWord::kExtent)) c_.policy.insert(index_, page);
  }
}

// Its near pages go to the queues of the policy. A page that has an owner now loses kExtent by that, or keeps its word.
void ExtentEvictor::break_up(ExtentIndex extent) {
  counters_.add(Counter::kExtentsBroken);
  for (PageIndex page = first_page(extent), end = page + kExtentPages; page < end; page++) {
    PageWord old = c_.table[page].update([](PageWord w) {
      return w.is(PageState::kNear) && w.has(PageWord::kExtent) ? w.without(PageWord::kExtent) : w;
    });
    if (old.is(PageState::kNear) && old.has(PageWord::kExtent)) c_.policy.insert(index_, page);
  }
}

// ---- Write ----

// The frame is out of place: its content is final.
ExtentBits ExtentEvictor::find_changed(const Leaving& leaving) {
  uint64_t start = ticks();
  ExtentBits changed;
  const std::byte* content = c_.pool.address_of(leaving.slot);
  const uint64_t* sums = c_.extents.sums(leaving.extent);
  bool any = false;
  for (unsigned i = 0; i < kExtentPages; i++) {
    PageWord word = c_.table[first_page(leaving.extent) + i].load();
    if (!word.has(PageWord::kDirty) || word.has(PageWord::kFreed)) continue;
    const std::byte* page = content + i * kPageSize;
    bool same = word.has(PageWord::kStored) ? sums && word.has(PageWord::kExtent) && sums[i] == ContentSums::of(page)
                                            : is_zero_page(page);
    if (!same) changed.set(i), any = true;
  }
  if (!any) c_.extents.clear(leaving.extent, ExtentTable::kWritten);
  counters_.add(Counter::kCompareTicks, ticks() - start);
  return changed;
}

void ExtentEvictor::write(Leaving& leaving, const ExtentBits& changed) {
  constexpr size_t kRequestPages = 64;  // of one request: reads of other threads do not wait long behind it
  transport::Segment segments[kRequestPages];
  size_t count = 0, pages = 0, written = 0;
  uint64_t far = PageTable::far_of(first_page(leaving.extent));
  std::byte* content = c_.pool.address_of(leaving.slot);
  for (unsigned i = 0; i < kExtentPages; i++) {
    if (!changed.has(i)) continue;
    bool follows = count > 0 && segments[count - 1].far + segments[count - 1].bytes == far + i * kPageSize;
    if (follows) segments[count - 1].bytes += kPageSize;
    else segments[count++] = {far + i * kPageSize, kPageSize, content + i * kPageSize};
    written++;
    if (++pages < kRequestPages) continue;
    submit(leaving, {segments, count});
    count = pages = 0;
  }
  if (count > 0) submit(leaving, {segments, count});
  counters_.add(Counter::kDirtyEvictions, written);
  counters_.add(Counter::kBytesWritten, written * kPageSize);
  leaving.submitted = true;
  if (leaving.acknowledged == leaving.writes) finish(leaving);
}

void ExtentEvictor::submit(Leaving& leaving, std::span<const transport::Segment> segments) {
  FARSIDE_CHECK(leaving.writes < Leaving::kMaxWrites);
  transport::Token& token = leaving.tokens[leaving.writes];
  int error;
  while ((error = channel_->submit_write(segments, -1, &token)) == -EAGAIN) evictor_.wait_for_write();
  if (error) die_of_lost_memory(c_.store, error);
  leaving.writes++;
}

bool ExtentEvictor::poll() {
  bool progress = false;
  for (Leaving& l : leaving_) {
    if (l.is_free()) continue;
    for (; l.acknowledged < l.writes; l.acknowledged++) {  // they complete in order
      int r = channel_->poll(l.tokens[l.acknowledged]);
      if (r < 0) die_of_lost_memory(c_.store, r);
      if (r == 0) break;
      progress = true;
    }
    if (l.submitted && l.acknowledged == l.writes) finish(l);
  }
  return progress;
}

// ---- Release ----

void ExtentEvictor::finish(Leaving& leaving) {
  uint64_t start = ticks();
  uint16_t epoch = c_.frames.epoch();
  const std::byte* content = c_.pool.address_of(leaving.slot);
  uint64_t emptied = 0;
  c_.extents.drop_sums(leaving.extent);
  for (unsigned i = 0; i < kExtentPages; i++) {
    PageTable::Entry page = c_.table[first_page(leaving.extent) + i];
    PageWord word = page.load();
    bool freed = word.has(PageWord::kFreed);
    bool stored = word.has(PageWord::kStored) || (word.has(PageWord::kDirty) && !is_zero_page(content + i * kPageSize));
    PageWord old = page.update([&](PageWord w) {
      if (freed) return w.without_content().with_state(PageState::kUnmapped);
      PageWord gone = w.without(PageWord::kDirty | PageWord::kHot | PageWord::kCow | PageWord::kExtent);
      gone = gone.with(stored ? PageWord::kStored : 0).with_epoch(epoch);
      return gone.with_state(stored ? PageState::kFar : PageState::kUntouched);
    });
    FARSIDE_CHECK(old.is(PageState::kEvicting));
    if (freed || !stored) emptied++;
  }
  if (emptied > 0) c_.budget.depopulate(emptied);
  if (c_.pool.free() < c_.pool.target()) c_.pool.put(leaving.slot);
  else c_.pool.drop(leaving.slot);
  c_.frames.released().wake_all();
  leaving.slot = -1;
  FARSIDE_CHECK(in_flight_ > 0);
  in_flight_--;
  counters_.add(Counter::kReleaseTicks, ticks() - start);
}

}  // namespace farside::pager
