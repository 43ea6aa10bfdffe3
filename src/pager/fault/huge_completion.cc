// How fetches of whole huge pages end: the frame is moved into place, or its pages are mapped one by one.
#include <cerrno>
#include <cstring>

#include "base/inject.h"
#include "base/log.h"
#include "base/os.h"
#include "base/service_thread.h"
#include "pager/fault/huge_path.h"

namespace farside::pager {

// ---- Completion ----

bool HugePath::advance(ThreadSlot& self, ThreadSlot& owner, bool move) {
  bool any = false;
  for (HugeFetch& fetch : owner.reads.huge()) {
    if (fetch.is_free()) continue;
    if (!fetch.is_filled()) any |= read_some(self, owner, fetch, false);
    if (!fetch.is_filled() || !move) continue;
    finish(self, owner, fetch);
    any = true;
  }
  return any;
}

void HugePath::drain(ThreadSlot& self, ThreadSlot& owner) {
  for (HugeFetch& fetch : owner.reads.huge()) {
    if (!fetch.is_free()) finish(self, owner, fetch);
  }
}

bool HugePath::finish_own(ThreadSlot& t, PageIndex page) {
  bool write;
  HugeIndex huge = huge_of(page);
  {
    ReadQueueLock lock(t.reads);
    HugeFetch* fetch = t.reads.find_huge(huge);
    if (!fetch) return false;
    write = fetch->write;
    count_ahead(t, *fetch);
    finish(t, t, *fetch);
  }
  HugeStreams::Stream& stream = record_fault(t, page);
  if (!stream.is_sure()) return true;
  HugeStreams::pass_huge(stream, huge);
  start_ahead(t, stream, write || stream.writes);
  return true;
}

// If evictors did not read several huge pages in time, no core is free for them.
void HugePath::count_ahead(ThreadSlot& t, const HugeFetch& fetch) {
  constexpr unsigned kMisses = 4, kPause = 16;  // huge pages
  if (fetch.filled > 0) t.ahead_misses = 0;
  else if (t.ahead_pause == 0 && ++t.ahead_misses >= kMisses) t.ahead_pause = kPause, t.ahead_misses = kMisses - 1;
}

void HugePath::finish(ThreadSlot& self, ThreadSlot& owner, HugeFetch& fetch) {
  while (!fetch.is_filled()) read_some(self, owner, fetch, true);
  uint64_t start = ticks();
  std::byte* content = pool_.address_of(fetch.slot);
  for (unsigned i = 0; i < kHugePages; i++) {
    if (fetch.empty.has(i)) memset(content + i * kPageSize, 0, kPageSize);
  }
  if (fetch.claimed.is_full() || claim_near(fetch)) {
    copy_near(fetch);
    move_in(self, fetch);
    if (unsigned frames = fetch.near.count()) frames_.give(frames);
  } else {
    self.counters.add(Counter::kHugeBroken);
    copy_in(self, fetch, 0);
  }
  self.counters.add(Counter::kMapTicks, ticks() - start);
  owner.reads.ended(fetch);
}

// Owns the pages that were near at the start of the read, to take their content into the frame. False: not all of them
// are near and free.
bool HugePath::claim_near(HugeFetch& fetch) {
  PageIndex first = first_page(fetch.huge);
  for (unsigned i = 0; i < kHugePages; i++) {
    if (fetch.claimed.has(i)) continue;
    PageWord word = table_[first + i].load();
    bool claimed = false;
    while (!claimed && word.is(PageState::kNear) && word.pins() == 0 && !word.has(PageWord::kUpgrading) &&
           !word.is_free() && !is_excluded(word)) {
      claimed = table_[first + i].try_change(word, word.with_state(PageState::kEvicting).with_owner(0));
    }
    if (claimed) {
      fetch.near.set(i);
      continue;
    }
    for (unsigned k = 0; k < i; k++) {
      if (!fetch.near.has(k)) continue;
      table_[first + k].update([](PageWord w) { return w.with_state(PageState::kNear); });
      policy_.insert(0, first + k);  // an evictor may have taken it out of its queue meanwhile
    }
    fetch.near = HugeBits();
    return false;
  }
  return true;
}

// Protected first, so that no store is lost. The pages are unmapped when the frame takes their place.
void HugePath::copy_near(HugeFetch& fetch) {
  if (fetch.near.count() == 0) return;
  std::byte* address = table_.address_of(first_page(fetch.huge));
  if (int error = space_.write_protect(address, kHugeBytes, true))
    die("internal error: cannot protect page {} (error {})", first_page(fetch.huge), -error);
  inject::pause("huge:protected");
  std::byte* content = pool_.address_of(fetch.slot);
  for (unsigned i = 0; i < kHugePages; i++) {
    if (!fetch.near.has(i)) continue;
    memcpy(content + i * kPageSize, address + i * kPageSize, kPageSize);
    if (!fetch.sums) continue;
    // The sum of a changed page must not be that of its content, which the server does not have.
    bool changed = table_[first_page(fetch.huge) + i].load().has(PageWord::kDirty);
    fetch.sums[i] = ContentSums::of(content + i * kPageSize) ^ (changed ? 1 : 0);
  }
}

// No other thread of the program, nor another process with its memory, may write while this one does not.
bool HugePath::is_only_writer() const {
  if (other_writers_.load(std::memory_order_relaxed)) return false;
  return os::thread_count() == static_cast<int>(ServiceThread::count()) + 1;
}

// ---- Mapping ----

// All pages of the huge page are owned, and their content is in the frame. The page table of a huge page that was
// mapped by pages must go before a huge page can take its place: the kernel frees it (6.14 and later) when all of its
// range is dropped.
void HugePath::move_in(ThreadSlot& self, HugeFetch& fetch) {
  std::byte* address = table_.address_of(first_page(fetch.huge));
  PageRun whole = {address, kHugeBytes};
  if (int error = space_.unmap({&whole, 1})) die("internal error: cannot clear page tables (error {})", -error);
  bool alone = !fetch.sums && is_only_writer();
  long moved = space_.move(address, pool_.address_of(fetch.slot), kHugeBytes);
  inject::pause("huge:moved");
  if (moved > 0 && !fetch.write) {
    if (int error = space_.write_protect(address, static_cast<size_t>(moved), true))
      die("internal error: cannot protect page {} (error {})", first_page(fetch.huge), -error);
  }
  if (moved == static_cast<long>(kHugeBytes)) {
    pool_.put_empty(fetch.slot);
    return publish(fetch, alone);
  }
  self.counters.add(Counter::kHugeBroken);
  if (moved == -EINVAL) huge_table_.set(fetch.huge, HugeTable::kRefused);  // the program divided its mapping
  copy_in(self, fetch, moved > 0 ? static_cast<uint64_t>(moved) : 0);
}

// Maps what is owned of the huge page page by page; it did not come whole, or the kernel refused. The first `moved`
// bytes are in place. For a moment up to 2 MiB more are near than the budget counts.
void HugePath::copy_in(ThreadSlot& self, HugeFetch& fetch, uint64_t moved) {
  PageIndex first = first_page(fetch.huge);
  std::byte* to = table_.address_of(first);
  const std::byte* content = pool_.address_of(fetch.slot);
  uint64_t owned = 0;
  for (unsigned i = 0; i < kHugePages; i++) {
    PageWord word = table_[first + i].load();
    if (!fetch.claimed.has(i) && !fetch.near.has(i)) continue;
    bool is_moved = i * kPageSize < moved;
    bool changed = word.has(PageWord::kDirty);
    bool write = fetch.write || changed;
    int error = is_moved ? 0 : space_.map(to + i * kPageSize, content + i * kPageSize, kPageSize, !write);
    if (error == -ENOMEM) die("the machine is out of memory: the kernel has no page for near memory; lower --local");
    if (error) die("internal error: cannot map page {} (error {})", first + i, -error);
    // What was moved may have been written before it was protected.
    uint64_t flags = write ? PageWord::kDirty : 0;
    if (is_moved && !fetch.write) flags = PageWord::kDirty | PageWord::kCow;
    table_[first + i].update(
        [&](PageWord w) { return w.with_state(PageState::kNear).with_owner(0).without(PageWord::kCow).with(flags); });
    policy_.insert(self.index, first + i);
    owned++;
  }
  if (unsigned empty = fetch.empty.count()) budget_.populate(empty);
  HugeTable::free_sums(fetch.sums);
  pool_.drop_copied(fetch.slot);
  frames_.give(kHugePages - owned);
}

// From now on other threads may use the pages. Their words have kHuge before the huge page is queued. Unless this
// thread is the only writer, what was fetched for reads may have been written before it was protected.
void HugePath::publish(const HugeFetch& fetch, bool alone) {
  huge_table_.set_sums(fetch.huge, fetch.sums);
  uint64_t flags = PageWord::kHuge | (fetch.write ? PageWord::kDirty : 0);
  for (unsigned i = 0; i < kHugePages; i++) {
    PageWord old = table_[first_page(fetch.huge) + i].update([&](PageWord w) {
      PageWord near = w.with_state(PageState::kNear).with_owner(0).with(flags);
      if (fetch.write) return near.without(PageWord::kCow);
      bool clean = alone && !w.has(PageWord::kDirty);
      return clean ? near.without(PageWord::kCow) : near.with(PageWord::kDirty | PageWord::kCow);
    });
    FARSIDE_CHECK(old.is(fetch.claimed.has(i) ? PageState::kFetching : PageState::kEvicting));
  }
  inject::pause("huge:published");
  if (unsigned empty = fetch.empty.count()) budget_.populate(empty);
  huge_queue_.push(fetch.huge, queue_of(fetch));
}

HugeQueue::Kind HugePath::queue_of(const HugeFetch& fetch) {
  if (fetch.hot) return HugeQueue::kMain;
  return fetch.empty.is_full() ? HugeQueue::kNew : HugeQueue::kRecent;
}

}  // namespace farside::pager
