#include "pager/evict/huge_evictor.h"

#include <algorithm>
#include <cerrno>

#include "base/inject.h"
#include "base/log.h"
#include "pager/huge/content_sums.h"
#include "pager/pages/budget.h"
#include "pager/pages/frames.h"
#include "pager/policy/policy.h"
#include "pager/space/far_space.h"

namespace farside::pager {

bool HugeEvictor::is_ready() const { return channel_ && pool_.is_open() && in_flight_ < kMaxInFlight; }

// ---- Which huge page ----

bool HugeEvictor::provide_frame() {
  constexpr uint64_t kSpareShare = 8;
  if (!pool_.wants_frame() || !is_ready()) return false;
  if (grow(frames_.limit() / kSpareShare)) return true;  // near memory is not short
  HugeIndex huge;
  HugeQueue::Kind kind;
  if (huge_queue_.pop_surplus(&huge, &kind)) return evict(huge, kind);
  if (pop_main(kHugePages, &huge)) return evict(huge, HugeQueue::kMain);
  return grow(frames_.low_water());
}

bool HugeEvictor::grow(uint64_t spare) {
  if (!pool_.prepare(spare)) return false;
  frames_.released().wake_all();
  return true;
}

bool HugeEvictor::free_frames(size_t pages) {
  if (!pool_.is_open() && break_up_any()) return true;
  if (!is_ready()) return false;
  if (pool_.free() > pool_.target()) return pool_.drop_free();
  HugeIndex huge;
  HugeQueue::Kind kind;
  if (huge_queue_.pop_surplus(&huge, &kind)) return evict(huge, kind);
  return pop_main(pages, &huge) && evict(huge, HugeQueue::kMain);
}

bool HugeEvictor::free_any() {
  if (!is_ready()) return false;
  HugeIndex huge;
  HugeQueue::Kind kind;
  return huge_queue_.pop_any(&huge, &kind) && evict(huge, kind);
}

// There are no frames in this process, but near huge pages: a forked child has them of its parent.
bool HugeEvictor::break_up_any() {
  HugeIndex huge;
  HugeQueue::Kind kind;
  if (!huge_queue_.pop_any(&huge, &kind)) return false;
  break_up(huge);
  return true;
}

// The policy's surplus leaves first. Its other pages and the huge pages of the main queue leave in proportion to how
// many there are.
bool HugeEvictor::pop_main(size_t pages, HugeIndex* huge) {
  policy_.set_elsewhere(huge_queue_.size() * uint64_t{kHugePages});
  uint64_t in_huge = huge_queue_.size(HugeQueue::kMain) * uint64_t{kHugePages};
  if (in_huge == 0) return false;
  uint64_t surplus = policy_.surplus();
  if (surplus >= pages) return false;
  uint64_t queued = policy_.queued();
  credit_ += (pages - surplus) * in_huge / (in_huge + queued - std::min(queued, surplus));
  if (credit_ < kHugePages) return false;
  credit_ = std::min<uint64_t>(credit_ - kHugePages, kHugePages);
  return huge_queue_.pop(HugeQueue::kMain, huge);
}

// ---- Eviction ----

// The huge page has no entry in the queue any more. True: there was progress, or its pages are in the policy's queues
// now.
bool HugeEvictor::evict(HugeIndex huge, HugeQueue::Kind kind) {
  uint64_t start = ticks();
  HugeBits claimed;
  bool may_retry = true;
  unsigned count = claim(huge, &claimed, &may_retry);
  inject::pause("huge:evicting");
  Slot slot = count == kHugePages ? move_out(huge) : -1;
  uint64_t moved = ticks();
  counters_.add(Counter::kUnmapTicks, moved - start);
  if (slot < 0) {
    unclaim(huge, claimed);
    if (count < kHugePages && may_retry) huge_queue_.push(huge, kind);
    else break_up(huge);
    return count == kHugePages || !may_retry;
  }
  Leaving& leaving = *std::find_if(leaving_, leaving_ + kMaxInFlight, [](const Leaving& l) { return l.is_free(); });
  leaving.huge = huge;
  leaving.slot = slot;
  leaving.writes = leaving.acknowledged = 0;
  leaving.submitted = false;
  in_flight_++;
  counters_.add(Counter::kHugeEvicted);
  counters_.add(Counter::kEvictions, kHugePages);
  frames_.count_evicted(kHugePages);
  write(leaving, find_changed(leaving));
  counters_.add(Counter::kWriteTicks, ticks() - moved);
  return true;
}

// may_retry: all pages that could not be claimed are near, and will be free soon: pinned, or being made writable.
unsigned HugeEvictor::claim(HugeIndex huge, HugeBits* claimed, bool* may_retry) {
  unsigned count = 0;
  for (unsigned i = 0; i < kHugePages; i++) {
    PageTable::Entry page = table_[first_page(huge) + i];
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
Slot HugeEvictor::move_out(HugeIndex huge) {
  std::byte* address = table_.address_of(first_page(huge));
  if (!space_.is_huge(address, kHugeBytes)) return -1;
  Slot slot = pool_.take_empty();
  if (slot < 0) return -1;
  std::byte* to = pool_.address_of(slot);
  long moved = space_.move(to, address, kHugeBytes);
  if (moved == static_cast<long>(kHugeBytes)) return slot;
  if (moved <= 0) {
    pool_.put_empty(slot);
    return -1;
  }
  // The kernel split the huge page meanwhile, and stopped in the middle. What it moves back is mapped writable.
  auto bytes = static_cast<size_t>(moved);
  for (unsigned i = 0; i < bytes / kPageSize; i++) {
    table_[first_page(huge) + i].update([](PageWord w) { return w.without(PageWord::kCow).with(PageWord::kDirty); });
  }
  long back = space_.move(address, to, bytes);
  size_t done = back > 0 ? static_cast<size_t>(back) : 0;
  if (int error = done < bytes ? space_.map(address + done, to + done, bytes - done, false) : 0)
    die("internal error: cannot map page {} (error {})", first_page(huge), -error);
  pool_.drop_copied(slot);
  return -1;
}

// A page without kHuge is in a queue of the policy, but an evictor may have taken it out of there meanwhile.
void HugeEvictor::unclaim(HugeIndex huge, const HugeBits& claimed) {
  for (unsigned i = 0; i < kHugePages; i++) {
    if (!claimed.has(i)) continue;
    PageIndex page = first_page(huge) + i;
    PageWord old = table_[page].update([](PageWord w) { return w.with_state(PageState::kNear); });
    FARSIDE_CHECK(old.is(PageState::kEvicting));
    if (!old.has(PageWord::kHuge)) policy_.insert(index_, page);
  }
}

// Its near pages go to the queues of the policy. A page that has an owner now loses kHuge by that, or keeps its word.
void HugeEvictor::break_up(HugeIndex huge) {
  counters_.add(Counter::kHugeBroken);
  for (PageIndex page = first_page(huge), end = page + kHugePages; page < end; page++) {
    PageWord old = table_[page].update(
        [](PageWord w) { return w.is(PageState::kNear) && w.has(PageWord::kHuge) ? w.without(PageWord::kHuge) : w; });
    if (old.is(PageState::kNear) && old.has(PageWord::kHuge)) policy_.insert(index_, page);
  }
}

// ---- Write ----

// The frame is out of place: its content is final.
HugeBits HugeEvictor::find_changed(const Leaving& leaving) {
  uint64_t start = ticks();
  HugeBits changed;
  const std::byte* content = pool_.address_of(leaving.slot);
  const uint64_t* sums = huge_table_.sums(leaving.huge);
  bool any = false;
  for (unsigned i = 0; i < kHugePages; i++) {
    PageWord word = table_[first_page(leaving.huge) + i].load();
    if (!word.has(PageWord::kDirty) || word.has(PageWord::kFreed)) continue;
    const std::byte* page = content + i * kPageSize;
    bool same = word.has(PageWord::kStored) ? sums && word.has(PageWord::kHuge) && sums[i] == ContentSums::of(page)
                                            : is_zero_page(page);
    if (!same) changed.set(i), any = true;
  }
  if (!any) huge_table_.clear(leaving.huge, HugeTable::kWritten);
  counters_.add(Counter::kCompareTicks, ticks() - start);
  return changed;
}

void HugeEvictor::write(Leaving& leaving, const HugeBits& changed) {
  constexpr size_t kRequestPages = 64;  // of one request: reads of other threads do not wait long behind it
  transport::ByteRange ranges[kRequestPages];
  size_t count = 0, pages = 0, written = 0;
  uint64_t far = PageTable::far_of(first_page(leaving.huge));
  std::byte* content = pool_.address_of(leaving.slot);
  for (unsigned i = 0; i < kHugePages; i++) {
    if (!changed.has(i)) continue;
    bool follows = count > 0 && ranges[count - 1].far + ranges[count - 1].bytes == far + i * kPageSize;
    if (follows) ranges[count - 1].bytes += kPageSize;
    else ranges[count++] = {far + i * kPageSize, kPageSize, content + i * kPageSize};
    written++;
    if (++pages < kRequestPages) continue;
    submit(leaving, {ranges, count});
    count = pages = 0;
  }
  if (count > 0) submit(leaving, {ranges, count});
  counters_.add(Counter::kDirtyEvictions, written);
  counters_.add(Counter::kBytesWritten, written * kPageSize);
  leaving.submitted = true;
  if (leaving.acknowledged == leaving.writes) finish(leaving);
}

void HugeEvictor::submit(Leaving& leaving, std::span<const transport::ByteRange> ranges) {
  FARSIDE_CHECK(leaving.writes < Leaving::kMaxWrites);
  transport::Token& token = leaving.tokens[leaving.writes];
  int error;
  while ((error = channel_->submit_write(ranges, -1, &token)) == -EAGAIN) owner_.wait_for_write();
  if (error) die_of_lost_memory(store_, error);
  leaving.writes++;
}

bool HugeEvictor::poll() {
  bool progress = false;
  for (Leaving& l : leaving_) {
    if (l.is_free()) continue;
    for (; l.acknowledged < l.writes; l.acknowledged++) {  // they complete in order
      int r = channel_->poll(l.tokens[l.acknowledged]);
      if (r < 0) die_of_lost_memory(store_, r);
      if (r == 0) break;
      progress = true;
    }
    if (l.submitted && l.acknowledged == l.writes) finish(l);
  }
  return progress;
}

// ---- Release ----

void HugeEvictor::finish(Leaving& leaving) {
  uint64_t start = ticks();
  uint16_t epoch = frames_.epoch();
  const std::byte* content = pool_.address_of(leaving.slot);
  uint64_t emptied = 0;
  huge_table_.drop_sums(leaving.huge);
  for (unsigned i = 0; i < kHugePages; i++) {
    PageTable::Entry page = table_[first_page(leaving.huge) + i];
    PageWord word = page.load();
    bool freed = word.has(PageWord::kFreed);
    bool stored = word.has(PageWord::kStored) || (word.has(PageWord::kDirty) && !is_zero_page(content + i * kPageSize));
    PageWord old = page.update([&](PageWord w) {
      if (freed) return w.without_content().with_state(PageState::kUnmapped);
      PageWord gone = w.without(PageWord::kDirty | PageWord::kHot | PageWord::kCow | PageWord::kHuge);
      gone = gone.with(stored ? PageWord::kStored : 0).with_epoch(epoch);
      return gone.with_state(stored ? PageState::kFar : PageState::kUntouched);
    });
    FARSIDE_CHECK(old.is(PageState::kEvicting));
    if (freed || !stored) emptied++;
  }
  if (emptied > 0) budget_.depopulate(emptied);
  if (pool_.free() < pool_.target()) pool_.put(leaving.slot);
  else pool_.drop(leaving.slot);
  frames_.released().wake_all();
  leaving.slot = -1;
  FARSIDE_CHECK(in_flight_ > 0);
  in_flight_--;
  counters_.add(Counter::kReleaseTicks, ticks() - start);
}

}  // namespace farside::pager
