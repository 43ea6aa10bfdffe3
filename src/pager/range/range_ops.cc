#include "pager/range/range_ops.h"

#include <algorithm>
#include <cstring>

#include "base/inject.h"
#include "base/log.h"
#include "pager/evict/evictor_group.h"

namespace farside::pager {
namespace {
constexpr unsigned kPiece = 4096;  // pages owned at a time by one range operation; bounds how long other threads wait

// The owner field of a page that a range operation owns.
enum : uint16_t {
  kNoFrame = 0,
  kHeldFrame = 1,  // it had a frame, which becomes the operation's
  kKeptFrame = 2,  // it had one, and keeps it
};
bool held_frame(PageWord owned) { return owned.owner() == kHeldFrame; }

int discard_now(transport::Channel& channel, const transport::ByteRange& range) {
  FARSIDE_DCHECK(range.bytes > 0 && is_aligned(range.bytes, kPageSize));
  transport::Token token = 0;
  int error = channel.submit_discard({&range, 1}, &token);
  return error ? error : channel.wait(token, kTransportTimeoutNs);
}

int write_now(transport::Channel& channel, const transport::ByteRange& range) {
  transport::Token token = 0;
  int error = channel.submit_write({&range, 1}, -1, &token);
  return error ? error : channel.wait(token, kTransportTimeoutNs);
}
}  // namespace

void RangeOps::commit(PageIndex first, uint64_t count) {
  ThreadSlot& t = threads_.current();
  for (uint64_t i = 0; i < count; i++) commit_one(t, first + static_cast<PageIndex>(i));
}

void RangeOps::commit_one(ThreadSlot& t, PageIndex page) {
  for (;;) {
    PageWord w = table_[page].load();
    FARSIDE_CHECK(!w.is_foreign());
    if (w.is(PageState::kUnmapped)) {
      if (table_[page].try_change(w, w.with_state(PageState::kUntouched))) return;
    } else if (w.has(PageWord::kFreed) && (w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading))) {
      faults_.wait_for_owner(t, page);
    } else if (!w.is_free() || take_back(t, page, w)) {
      return;
    }
  }
}

// A freed page is near. False: its word has changed, or it was dropped. After a fork its frame may be shared.
bool RangeOps::take_back(ThreadSlot& t, PageIndex page, PageWord word) {
  InGate inside(gate_, t);
  if (!word.writable()) {
    drop_piece(t, page, 1, {PageState::kUnmapped});
    return false;
  }
  if (!table_[page].try_change(word, word.with_state(PageState::kEvicting).with_owner(kKeptFrame))) return false;
  inject::pause("commit:owned");
  memset(table_.address_of(page), 0, kPageSize);
  table_[page].update(
      [](PageWord w) { return w.without_content().with(PageWord::kDirty).with_state(PageState::kNear); });
  policy_.insert(t.index, page);  // an evictor may have taken it out of its queue meanwhile
  return true;
}

void RangeOps::set_foreign(PageIndex first, uint64_t count, bool foreign) {
  for (uint64_t i = 0; i < count; i++) {
    PageWord old = foreign ? table_[first + i].set(PageWord::kForeign) : table_[first + i].clear(PageWord::kForeign);
    FARSIDE_CHECK(old.is(PageState::kUnmapped));
  }
}

bool RangeOps::all_mapped(PageIndex first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    PageIndex page = first + static_cast<PageIndex>(i);
    PageWord w = table_[page].load();
    bool in_doubt = w.is(PageState::kEvicting) && w.has(PageWord::kFreed);  // by an evictor, or for commit()
    if (in_doubt) faults_.wait_for_owner(threads_.current(), page);
    if (table_[page].load().is_free()) return false;
  }
  return true;
}

void RangeOps::drop(PageIndex first, uint64_t count, PageState to) { drop_pieces(first, count, {to}); }
void RangeOps::free(PageIndex first, uint64_t count) { drop_pieces(first, count, {PageState::kUnmapped, true}); }

void RangeOps::drop_pieces(PageIndex first, uint64_t count, Drop drop) {
  ThreadSlot& t = threads_.current();
  while (count > 0) {
    unsigned piece = count < kPiece ? static_cast<unsigned>(count) : kPiece;
    InGate inside(gate_, t);
    drop_piece(t, first, piece, drop);
    first += piece;
    count -= piece;
  }
}

// Owns every mapped page of the piece before anything is dropped. The discard request covers the whole range, and must
// not affect a page that another thread makes near meanwhile.
void RangeOps::drop_piece(ThreadSlot& t, PageIndex first, unsigned count, Drop drop) {
  bool any_near = false, any_stored = false;
  for (PageIndex page = first; page < first + count; page++) {
    own(t, page, drop.keeps_frames);
    PageWord w = table_[page].load();
    if (w.is(PageState::kUnmapped)) continue;
    any_near |= held_frame(w);
    any_stored |= w.has(PageWord::kStored);
  }
  inject::pause("drop:owned");
  if (any_near) unmap_owned(first, count);
  if (any_stored) discard_far(t, first, count);
  uint64_t freed = 0, emptied = 0;
  for (PageIndex page = first; page < first + count; page++) {
    PageWord old = table_[page].load();
    if (old.is(PageState::kUnmapped)) continue;
    FARSIDE_CHECK(old.is(PageState::kEvicting) && old.owner() <= kKeptFrame);
    twins_.drop(page);
    if (old.owner() == kKeptFrame) {
      keep(t, page);
      continue;
    }
    freed += held_frame(old);
    emptied += held_frame(old) || old.has(PageWord::kStored);
    PageState to = old.has(PageWord::kFreed) ? PageState::kUnmapped : drop.to;
    table_[page].update([&](PageWord w) {
      uint64_t sealed = to == PageState::kUnmapped ? 0 : w.bits() & PageWord::kSealed;
      return w.without_content().with(sealed).with_state(to);
    });
  }
  if (emptied > 0) budget_.depopulate(emptied);
  frames_.give(freed);
}

// Releases a freed page with its frame.
void RangeOps::keep(ThreadSlot& t, PageIndex page) {
  table_[page].update([](PageWord w) {
    return w.without_content().with(PageWord::kDirty | PageWord::kFreed).with_state(PageState::kNear);
  });
  policy_.insert(t.index, page);
  evictors_.add_freed(page);
}

// Makes the caller the owner of a mapped page (kEvicting). The owner field has no other meaning in this state; it
// records what becomes of the page's frame. Only one that is mapped writable is of use to commit().
void RangeOps::own(ThreadSlot& t, PageIndex page, bool keeps_frame) {
  for (;;) {
    PageWord w = table_[page].load();
    if (w.is(PageState::kUnmapped)) return;
    if (w.is(PageState::kFetching) || w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading)) {
      faults_.wait_for_owner(t, page);
      continue;
    }
    bool keeps = keeps_frame && w.writable() && w.pins() == 0 && !w.has(PageWord::kObjects);
    uint16_t frame = !w.is(PageState::kNear) ? kNoFrame : keeps ? kKeptFrame : kHeldFrame;
    if (table_[page].try_change(w, w.with_state(PageState::kEvicting).with_owner(frame))) return;
  }
}

// Only owned pages: a hole in the range may be committed by another thread at any moment.
void RangeOps::unmap_owned(PageIndex first, unsigned count) {
  constexpr size_t kRuns = 256;
  PageRun runs[kRuns];
  size_t used = 0;
  auto flush = [&] {
    if (int error = used ? space_.unmap({runs, used}) : 0) die("internal error: cannot drop pages (error {})", -error);
    used = 0;
  };
  for (PageIndex page = first; page < first + count; page++) {
    PageWord w = table_[page].load();
    if (!w.is(PageState::kEvicting) || !held_frame(w)) continue;
    if (used == kRuns) flush();
    used = append_page(runs, used, table_.address_of(page));
  }
  flush();
}

// Waits for the server: this discard must not be executed after a write of the next use of the page.
void RangeOps::discard_far(ThreadSlot& t, PageIndex first, unsigned count) {
  transport::ByteRange range = {PageTable::far_of(first), static_cast<uint32_t>(count * kPageSize), nullptr};
  ReadQueueLock lock(t.reads);
  int error = discard_now(t.reads.channel(store_), range);
  if (error) die_of_lost_memory(store_, error);
  t.counters.add(Counter::kBytesDiscarded, range.bytes);
}

void RangeOps::seal(PageIndex first, uint64_t count) {
  ThreadSlot& t = threads_.current();
  for (uint64_t i = 0; i < count; i++) {
    InGate inside(gate_, t);
    PageIndex page = first + static_cast<PageIndex>(i);
    if (table_[page].load().is_free()) continue;
    own(t, page);
    if (!table_[page].load().is(PageState::kUnmapped)) push_out(t, page);
  }
}

// Evicts one owned page synchronously: protects it, writes it from its own address if it is dirty, and unmaps it.
void RangeOps::push_out(ThreadSlot& t, PageIndex page) {
  std::byte* address = table_.address_of(page);
  PageWord w = table_[page].load();
  FARSIDE_CHECK(w.is(PageState::kEvicting) && w.owner() <= kHeldFrame);
  bool near = held_frame(w);
  bool dirty = near && w.has(PageWord::kDirty);
  if (dirty) {
    if (int error = space_.write_protect(address, kPageSize, true))
      die("internal error: cannot protect page {} (error {})", page, -error);
    transport::ByteRange range = {PageTable::far_of(page), kPageSize, address};
    ReadQueueLock lock(t.reads);
    int error = write_now(t.reads.channel(store_), range);
    if (error) die_of_lost_memory(store_, error);
    t.counters.add(Counter::kBytesWritten, kPageSize);
  }
  if (near) unmap_owned(page, 1);
  twins_.drop(page);
  bool stored = dirty || w.has(PageWord::kStored);
  if (near && !stored) budget_.depopulate(1);
  table_[page].update([&](PageWord now) {
    PageWord kept = now.without_content();
    kept = kept.with(PageWord::kSealed | (stored ? PageWord::kStored : 0));
    kept = kept.with_epoch(frames_.epoch());
    return kept.with_state(stored ? PageState::kFar : PageState::kUntouched);
  });
  frames_.give(near ? 1 : 0);
}

void RangeOps::unseal(PageIndex first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) table_[first + i].clear(PageWord::kSealed);
}

// What a pass over a range sees of each window. One that was seen as a whole, and in which nothing had to be written,
// is settled.
class RangeOps::WindowScan {
 public:
  WindowScan(PageTable& table, PageIndex end) : table_(table), end_(end) {}

  // The first page from `page` on that has to be looked at.
  PageIndex next(PageIndex page) {
    while (page < end_ && page % PageTable::kWindowPages == 0) {
      finish();
      PageIndex after = page + static_cast<PageIndex>(PageTable::kWindowPages);
      if (!table_.is_settled(page)) {
        is_whole_ = after <= end_;
        first_ = page;
        if (is_whole_) ticket_ = table_.begin_settling(page);
        return page;
      }
      page = std::min(after, end_);
    }
    return page;
  }
  void found_dirty() { is_whole_ = false; }
  void finish() {
    if (is_whole_) table_.end_settling(first_, ticket_);
    is_whole_ = false;
  }

 private:
  PageTable& table_;
  const PageIndex end_;
  PageIndex first_ = 0;
  uint32_t ticket_ = 0;
  bool is_whole_ = false;
};

bool RangeOps::WriteBack::add(PageIndex first, uint64_t count) {
  PageIndex end = first + static_cast<PageIndex>(count);
  WindowScan scan(ranges_.table_, end);
  for (PageIndex page = scan.next(first); page < end; page = scan.next(page + 1)) {
    if (!inside_) inside_.emplace(ranges_.gate_, thread_);
    Sync found = ranges_.own_dirty(thread_, page, dirty_);
    if (found == Sync::kFree) return false;
    if (found == Sync::kOwned) scan.found_dirty();
    if (dirty_.count == DirtyPages::kMax) finish();
  }
  scan.finish();
  return true;
}

void RangeOps::WriteBack::finish() {
  if (dirty_.count > 0) ranges_.store_and_release(thread_, dirty_);
  dirty_.count = 0;
  inside_.reset();
}

void RangeOps::store_and_release(ThreadSlot& t, DirtyPages& dirty) {
  store(t, dirty);
  for (size_t i = 0; i < dirty.count; i++) {
    // A system call in progress may still write to a pinned page, which was not protected.
    bool stays_dirty = dirty.before[i].pins() > 0;
    table_[dirty.pages[i]].update([&](PageWord w) {
      // Without kHuge: the sum of the page is not that of what is stored now.
      uint16_t owner = dirty.before[i].without(PageWord::kHuge).owner();
      PageWord near = w.with(PageWord::kStored).with_owner(owner).with_state(PageState::kNear);
      return stays_dirty ? near : near.without(PageWord::kDirty);
    });
    policy_.insert(t.index, dirty.pages[i]);  // an evictor may have taken it out of its queue meanwhile
  }
}

// Owns the page if it is near and dirty, and adds it. kClean: the server has its content.
RangeOps::Sync RangeOps::own_dirty(ThreadSlot& t, PageIndex page, DirtyPages& dirty) {
  for (;;) {
    PageWord w = table_[page].load();
    if (w.is(PageState::kFetching) || w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading)) {
      faults_.wait_for_owner(t, page);
      continue;
    }
    if (w.is_free()) return Sync::kFree;
    if (!w.has(PageWord::kDirty)) return Sync::kClean;
    if (!table_[page].try_change(w, w.with_state(PageState::kEvicting).with_owner(kKeptFrame))) continue;
    dirty.pages[dirty.count] = page;
    dirty.before[dirty.count++] = w;
    return Sync::kOwned;
  }
}

// Writes owned pages from their addresses, protected so that the program does not change them meanwhile.
void RangeOps::store(ThreadSlot& t, DirtyPages& dirty) {
  transport::ByteRange ranges[DirtyPages::kMax];
  size_t used = 0;
  for (size_t i = 0; i < dirty.count; i++) {
    PageIndex page = dirty.pages[i];
    std::byte* address = table_.address_of(page);
    if (int error = dirty.before[i].pins() > 0 ? 0 : space_.write_protect(address, kPageSize, true))
      die("internal error: cannot protect page {} (error {})", page, -error);
    twins_.drop(page);
    transport::ByteRange* last = used > 0 ? &ranges[used - 1] : nullptr;
    bool follows = last && last->far + last->bytes == PageTable::far_of(page) &&
                   static_cast<std::byte*>(last->near) + last->bytes == address;
    if (follows) last->bytes += kPageSize;
    else ranges[used++] = {PageTable::far_of(page), kPageSize, address};
  }
  inject::pause("store:protected");
  transport::Token token = 0;
  ReadQueueLock lock(t.reads);
  transport::Channel& channel = t.reads.channel(store_);
  int error = channel.submit_write({ranges, used}, -1, &token);
  if (!error) error = channel.wait(token, kTransportTimeoutNs);
  if (error) die_of_lost_memory(store_, error);
  t.counters.add(Counter::kBytesWritten, dirty.count * kPageSize);
}

uint64_t RangeOps::take(PageIndex first, uint64_t count) {
  ThreadSlot& t = threads_.current();
  uint64_t taken = 0;
  while (taken < count) {
    InGate inside(gate_, t);
    DirtyPages dirty;
    auto begin = first + static_cast<PageIndex>(taken);
    uint64_t near = 0, untouched = 0;
    bool refused = false;
    while (taken < count && dirty.count < DirtyPages::kMax && !refused) {
      PageIndex page = first + static_cast<PageIndex>(taken);
      refused = !own_unpinned(t, page);
      if (refused) break;
      PageWord w = table_[page].load();
      near += held_frame(w);
      untouched += !held_frame(w) && !w.has(PageWord::kStored);
      if (w.has(PageWord::kDirty)) {
        dirty.pages[dirty.count] = page;
        dirty.before[dirty.count++] = w;
      }
      taken++;
    }
    auto piece = static_cast<unsigned>(first + static_cast<PageIndex>(taken) - begin);
    if (dirty.count > 0) store(t, dirty);
    if (near > 0) unmap_owned(begin, piece);
    for (PageIndex page = begin; page < begin + piece; page++) {
      table_[page].update([](PageWord w) {
        constexpr uint64_t kGone = PageWord::kDirty | PageWord::kHot | PageWord::kCow | PageWord::kPrefetched;
        return w.without(kGone).with(PageWord::kStored).with_owner(kNoFrame);
      });
    }
    if (untouched > 0) budget_.populate(untouched);
    frames_.give(near);
    if (refused) break;
  }
  return taken;
}

// As own, for a page that is the program's to read and write. A system call that uses the page is waited for.
bool RangeOps::own_unpinned(ThreadSlot& t, PageIndex page) {
  for (;;) {
    PageWord w = table_[page].load();
    if (w.is_free() || w.has(PageWord::kSealed) || w.has(PageWord::kObjects)) return false;
    if (w.is(PageState::kFetching) || w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading)) {
      faults_.wait_for_owner(t, page);
    } else if (w.pins() > 0) {
      os::sched_yield();
    } else {
      uint16_t frame = w.is(PageState::kNear) ? kHeldFrame : kNoFrame;
      if (table_[page].try_change(w, w.with_state(PageState::kEvicting).with_owner(frame))) return true;
    }
  }
}

void RangeOps::give_back(PageIndex first, uint64_t count) {
  ThreadSlot& t = threads_.current();
  InGate inside(gate_, t);
  uint16_t epoch = frames_.epoch();
  for (PageIndex page = first; page < first + count; page++) {
    [[maybe_unused]] PageWord old =
        table_[page].update([&](PageWord w) { return w.with_state(PageState::kFar).with_epoch(epoch); });
    FARSIDE_DCHECK(old.is(PageState::kEvicting) && old.has(PageWord::kStored));
  }
}

uint64_t RangeOps::pin(PageIndex first, uint64_t count, bool write) {
  FARSIDE_DCHECK(first + count <= table_.pages());
  ThreadSlot& t = threads_.current();
  uint64_t pinned = 0;
  for (; pinned < count && pin_one(t, first + static_cast<PageIndex>(pinned), write); pinned++) t.count_pins(1);
  return pinned;
}

// The fast path does not enter the gate and blocks no signal. A fork must see every pin: it shuts the gate before it
// looks, and this function checks the gate after it has pinned, so at least one of the two sees the other.
bool RangeOps::pin_one(ThreadSlot& t, PageIndex page, bool write) {
  for (;;) {
    PageWord w = table_[page].load();
    bool ready = w.is(PageState::kNear) && !w.has(PageWord::kUpgrading) && (!write || w.writable());
    if (ready && w.pins() == 0xffff) {
      os::sched_yield();
      continue;
    }
    if (ready && table_[page].try_change(w, PageWord(w.bits() + PageWord::kPinOne))) {
      if (!gate_.is_shut(t)) return true;
      table_[page].unpin();
    }
    SignalsBlocked blocked;
    InGate inside(gate_, t);
    if (faults_.resolve({t}, page, write) != FaultOutcome::kResolved) return false;
  }
}

void RangeOps::unpin(PageIndex first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) table_[first + i].unpin();
  threads_.current().count_pins(-static_cast<int32_t>(count));
}

}  // namespace farside::pager
