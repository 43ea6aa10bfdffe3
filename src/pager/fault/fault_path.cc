#include "pager/fault/fault_path.h"

#include <algorithm>
#include <cerrno>

#include "base/inject.h"
#include "base/log.h"
#include "fiber/wait.h"
#include "pager/shared/sample_log.h"

namespace farside::pager {

FaultOutcome FaultPath::fault(uint64_t address, bool write, bool may_suspend) {
  ThreadSlot& t = threads_.current();
  uint64_t start = ticks();
  Before before = {t.counters.get(Counter::kZeroFaults), t.counters.get(Counter::kWaitFrameTicks)};
  gate_.enter(t);
  t.counters.add(Counter::kFaults);
  FaultOutcome outcome = resolve({t, may_suspend}, table_.index_of(address), write);
  gate_.leave(t);
  uint64_t took = ticks() - start;
  t.counters.add(Counter::kFaultTicks, took);
  t.fault_times.put(took);
  if (t.counters.get(Counter::kZeroFaults) != before.touched) count_touch(t, before, took);
  return outcome;
}

// Memory is touched for the first time without far memory, too: no time is lost, but for waiting.
void FaultPath::count_touch(ThreadSlot& t, const Before& before, uint64_t took) {
  uint64_t waited = t.counters.get(Counter::kWaitFrameTicks) - before.waited;
  t.counters.add(Counter::kTouchFaults);
  t.counters.add(Counter::kTouchTicks, took - std::min(took, waited));
}

FaultOutcome FaultPath::resolve(const Caller& caller, PageIndex page, bool write) {
  ThreadSlot& t = caller.thread;
  FARSIDE_DCHECK(page < table_.pages() && t.depth.load(std::memory_order_relaxed) > 0);
  for (;;) {
    PageWord word = table_[page].load();
    switch (word.state()) {
      case PageState::kUnmapped:
        return FaultOutcome::kNotMapped;
      case PageState::kUntouched:
      case PageState::kFar:
        if (word.has(PageWord::kSealed)) return FaultOutcome::kNotMapped;
        if (fault_in(caller, page, word, write)) return FaultOutcome::kResolved;
        break;
      case PageState::kNear:
        if (word.has(PageWord::kUpgrading)) {
          wait_for_owner(t, page);
          break;
        }
        if (!write || word.writable()) {
          count_repeat(t, page);
          return FaultOutcome::kResolved;
        }
        if (huge_.upgrades_whole(page, word)) {
          bool read_only;
          huge_.upgrade(t, page, &read_only);
          if (read_only) return FaultOutcome::kReadOnly;
          break;
        }
        if (FaultOutcome outcome; upgrade(t, page, word, &outcome)) return outcome;
        break;
      case PageState::kFetching:
        if (word.owner() == t.index) {
          if (caller.may_suspend) suspend_fiber(t, page);
          else if (!fetches_.finish_own(t, page)) wait_for_owner(t, page);
          break;
        }
        [[fallthrough]];
      case PageState::kEvicting:
        t.counters.add(Counter::kWaitFaults);
        wait_for_owner(t, page);
        break;
    }
  }
}

// Counts consecutive faults on a page that its word calls near and accessible. Many of them mean that the kernel's
// mapping and the page word disagree: the process ends with a message instead of faulting forever.
void FaultPath::count_repeat(ThreadSlot& t, PageIndex page) {
  constexpr uint32_t kMaxRepeats = 100000;
  if (page != t.last_page) {
    t.last_page = page;
    t.repeats = 0;
    return;
  }
  if (++t.repeats < kMaxRepeats) return;
  die("internal error: page {} keeps faulting although it is near (word {:#x})", page, table_[page].load().bits());
}

void FaultPath::wait_for_owner(ThreadSlot& t, PageIndex page) {
  constexpr unsigned kSpins = 2000, kYields = 100, kSpinsBetweenHelps = 64;
  constexpr uint64_t kWaitNs = 200'000;
  uint64_t start = ticks();
  auto owned = [&] {
    PageWord w = table_[page].load();
    return w.is(PageState::kFetching) || w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading);
  };
  for (unsigned spins = 0; owned(); spins++) {
    PageWord w = table_[page].load();
    if (w.is(PageState::kFetching) && spins % kSpinsBetweenHelps == kSpinsBetweenHelps - 1) {
      ThreadSlot* owner = threads_.at(w.owner());
      if (owner && fetches_.complete_arrived(t, *owner)) continue;
    }
    if (spins < kSpins) {
      cpu_relax();
    } else if (spins < kSpins + kYields) {
      os::sched_yield();
    } else {
      uint32_t seen = frames_.released().value();
      if (owned()) frames_.released().wait(seen, kWaitNs);
    }
  }
  t.counters.add(Counter::kWaitPageTicks, ticks() - start);
}

// Faults of other fibers and poll_reads() complete this worker's reads meanwhile. The fiber continues on the same
// worker, so it has the same slot. It waits outside the gate, so a fork may happen meanwhile.
void FaultPath::suspend_fiber(ThreadSlot& t, PageIndex page) {
  auto settled = [](void* word) {
    PageWord w = static_cast<AtomicPageWord*>(word)->load();
    return !w.is(PageState::kFetching) && !w.is(PageState::kEvicting);
  };
  FARSIDE_DCHECK(t.depth.load(std::memory_order_relaxed) == 1);
  gate_.leave(t);
  fibers::wait_until(settled, table_.word_at(page));
  gate_.enter(t);
}

// First write to a page that was fetched for reading. The upgrading bit keeps evictors and range operations off until
// the protection is lifted: if the page were evicted and fetched again in between, the late unprotect would lose
// writes.
bool FaultPath::upgrade(ThreadSlot& t, PageIndex page, PageWord word, FaultOutcome* outcome) {
  FARSIDE_DCHECK(word.is(PageState::kNear) && !word.has(PageWord::kUpgrading));
  PageWord changed = word.with(PageWord::kDirty | PageWord::kUpgrading | PageWord::kWriteFollows)
                         .without(PageWord::kCow | PageWord::kPrefetched);
  if (!table_[page].try_change(word, changed)) return false;
  inject::pause("fault:upgrading");
  uint64_t start = ticks();
  std::byte* address = table_.address_of(page);
  if (word.has(PageWord::kStored) && !word.has(PageWord::kDirty)) twins_.make(page, address, t.index);
  if (int error = space_.write_protect(address, kPageSize, false)) {
    die("internal error: cannot lift the write protection of page {} (error {})", page, -error);
  }
  // After a fork the frame may be shared: make the kernel copy it now, while no evictor can hold the old frame.
  bool shared = word.has(PageWord::kCow) || space_.shares_unprotected_frames();
  if (shared && protect_again(page, address)) {
    *outcome = FaultOutcome::kReadOnly;
    return true;
  }
  *outcome = FaultOutcome::kResolved;
  PageWord upgraded = table_[page].clear(PageWord::kUpgrading);
  FARSIDE_CHECK(upgraded.is(PageState::kNear) && upgraded.has(PageWord::kUpgrading));
  t.counters.add(Counter::kMapTicks, ticks() - start);
  t.counters.add(Counter::kProtectionFaults);
  if (word.has(PageWord::kPrefetched)) t.counters.add(Counter::kPrefetchUsed);
  return true;
}

// Puts the page on a frame that only this process has. That fails where the program has made the page read-only (an
// outdated message in handler mode, or a system call that will return EFAULT): then the page is protected again.
// Returns whether it was.
bool FaultPath::protect_again(PageIndex page, std::byte* address) {
  if (space_.make_own(address) == 0) return false;
  if (int error = space_.write_protect(address, kPageSize, true))
    die("internal error: cannot protect page {} (error {})", page, -error);
  // It stays dirty: the program may have allowed writes again and written while the protection was lifted.
  table_[page].update([](PageWord w) { return w.without(PageWord::kUpgrading).with(PageWord::kCow); });
  return true;
}

// Claims an absent page, and a window of further ones if the faults follow a stride, and fetches them or starts to.
// Returns true if the page is near now.
bool FaultPath::fault_in(const Caller& caller, PageIndex page, PageWord word, bool write) {
  ThreadSlot& t = caller.thread;
  PageState state = word.state();
  if (prefetch_ && huge_.fault_in(caller, page, word, write)) return true;
  if (state == PageState::kFar) t.reads.prefetch(PageTable::far_of(page));
  fetches_.take_frame(t);
  if (!fetches_.claim(t, page, word)) return false;
  inject::pause("fault:claimed");
  t.repeats = 0;  // a fault that fetches a page makes progress
  Claim claim;
  claim.pages[claim.count++] = page;
  claim.write = write;
  Window next;
  if (prefetch_) next = claim_stream(t, claim, state);
  if (!write && claim.count == 1) claim.write = presume_write(t, page, word);
  if (state == PageState::kUntouched) {
    fetches_.fill_with_zeros(t, claim);
  } else {
    t.counters.add(Counter::kMajorFaults);
    huge_.record_fetch(t, {claim.pages, claim.count}, word);
    fetches_.fetch(caller, claim);
    fetches_.start_next_window(t, next, write);
  }
  return table_[page].load().is(PageState::kNear);
}

// Adds the window of the stream that this fault continues, and returns the window after it.
Window FaultPath::claim_stream(ThreadSlot& t, Claim& claim, PageState state) {
  bool far = state == PageState::kFar;
  if (far && samples_.is_open()) return {};  // each use of a sampled page is to be seen
  Window window = t.prefetcher.on_fault(claim.pages[0]);
  if (far) fetches_.record_used_window(t);
  if (far) huge_.shorten(t, window);
  if (window.count == 0) return {};
  // Untouched pages are mapped ahead of a stream of writes only: a page that is only read costs nothing until then.
  unsigned reached = far || claim.write ? fetches_.claim_window(t, claim, window, state) : 0;
  t.prefetcher.record_window(reached, far ? claim.count - 1 : 0);
  if (claim.count == 1) return {};
  Window next = t.prefetcher.next_window();
  if (far) huge_.shorten(t, next);
  return next;
}

// A page that was read first and then written in its last stay is mapped writable at once: the write would fault again,
// which costs twice as much as writing the page back for nothing. One stay in four, by a hash of the page and the time
// it was evicted, tests whether this still holds (docs/decisions/0007).
bool FaultPath::presume_write(ThreadSlot& t, PageIndex page, PageWord word) {
  if (!word.has(PageWord::kWriteFollows)) return false;
  uint32_t hash = (page + word.epoch() * 0x9e3779b1u) * 0x85ebca6bu;
  if (hash >> 30 == 0) {
    table_[page].clear(PageWord::kWriteFollows);
    return false;
  }
  t.counters.add(Counter::kPresumedDirty);
  return true;
}

}  // namespace farside::pager
