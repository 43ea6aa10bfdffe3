#include "pager/fault_path.h"

#include <cstring>

#include "base/inject.h"
#include "base/log.h"

namespace farside::pager {
namespace {

constexpr uint64_t kTransportTimeoutNs = 30ull * 1000 * 1000 * 1000;

// Source of zero pages. Read-only data: the kernel backs it once for everybody.
alignas(kPageSize) const std::byte kZeros[(Prefetcher::kMaxWindow + 1) * kPageSize] = {};

}  // namespace

void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error) {
  die("memory server {} is lost (error {}): {} pages of this program's memory were there; the program cannot go on. "
      "Restart it, and look at the server's log",
      store->address(), -error, page_count);
}

transport::Channel& channel_of(ThreadSlot& thread, remote::RemoteStore* store) {
  if (thread.channel) return *thread.channel;
  Status status;
  thread.channel = store->open_channel(&status);
  if (!thread.channel) die("{}", status.text());
  return *thread.channel;
}

FaultOutcome FaultPath::fault(uint64_t address, bool write) {
  ThreadSlot& t = c_.threads.current();
  uint64_t start = ticks();
  c_.gate.enter(t);
  t.counters.add(Counter::kFaults);
  FaultOutcome outcome = resolve(t, c_.table.index_of(address), write);
  c_.gate.leave(t);
  t.counters.add(Counter::kFaultTicks, ticks() - start);
  return outcome;
}

FaultOutcome FaultPath::resolve(ThreadSlot& t, PageIndex page, bool write) {
  for (;;) {
    PageWord word = c_.table[page].load();
    switch (word.state()) {
      case PageState::kUnmapped:
        return FaultOutcome::kNotMapped;
      case PageState::kUntouched:
      case PageState::kFar:
        if (word.has(PageWord::kSealed)) return FaultOutcome::kNotMapped;
        if (bring(t, page, word, write)) return FaultOutcome::kResolved;
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
        if (FaultOutcome outcome; upgrade(t, page, word, &outcome)) return outcome;
        break;
      case PageState::kFetching:
      case PageState::kEvicting:
        t.counters.add(Counter::kWaitFaults);
        wait_for_owner(t, page);
        break;
    }
  }
}

// A page that is near by its word should not fault again and again. If it does, the kernel and the table disagree, and
// going on would hang: stop and say so.
void FaultPath::count_repeat(ThreadSlot& t, PageIndex page) {
  if (page != t.last_page) {
    t.last_page = page;
    t.repeats = 0;
    return;
  }
  if (++t.repeats < 100000) return;
  die("internal error: page {} is near by its word {:#x} but keeps faulting", page, c_.table[page].load().bits());
}

void FaultPath::wait_for_owner(ThreadSlot& t, PageIndex page) {
  uint64_t start = ticks();
  auto owned = [&] {
    PageWord w = c_.table[page].load();
    return w.is(PageState::kFetching) || w.is(PageState::kEvicting) || w.has(PageWord::kUpgrading);
  };
  for (unsigned spins = 0; owned(); spins++) {
    if (spins < 2000) {
      cpu_relax();
    } else if (spins < 2100) {
      os::sched_yield();
    } else {
      uint32_t seen = c_.frames.released().value();
      if (owned()) c_.frames.released().wait(seen, 200000);
    }
  }
  t.counters.add(Counter::kWaitPageTicks, ticks() - start);
}

// First write to a page that came for reading. The upgrading bit keeps evictors and layout changes off until the
// protection is lifted: a late unprotect of a page that went away and came back would lose its next writes.
bool FaultPath::upgrade(ThreadSlot& t, PageIndex page, PageWord word, FaultOutcome* outcome) {
  PageWord changed = word.with(PageWord::kDirty | PageWord::kHot | PageWord::kUpgrading).without(PageWord::kCow | PageWord::kPrefetched);
  if (!c_.table[page].try_change(word, changed)) return false;
  inject::pause("fault:upgrading");
  uint64_t start = ticks();
  std::byte* address = c_.table.address_of(page);
  if (int error = c_.space.write_protect(address, kPageSize, false)) {
    die("internal error: cannot lift the write protection of page {} (error {})", page, -error);
  }
  // After a fork the frame may be shared: make the kernel copy it now, while no evictor can hold the old frame. Where
  // the program has made the page read-only this fails, and the page is protected again: it was a stale message of a
  // handler, or a system call that will get EFAULT.
  bool shared = word.has(PageWord::kCow) || c_.space.shares_unprotected_frames();
  if (shared && c_.space.make_own(address) != 0) {
    if (int error = c_.space.write_protect(address, kPageSize, true)) die("internal error: cannot protect page {} (error {})", page, -error);
    // Dirty it stays: the program may have allowed writing again and written while the protection was off.
    c_.table[page].update([](PageWord w) { return w.without(PageWord::kUpgrading).with(PageWord::kCow); });
    *outcome = FaultOutcome::kReadOnly;
    return true;
  }
  *outcome = FaultOutcome::kResolved;
  c_.table[page].clear(PageWord::kUpgrading);
  t.counters.add(Counter::kMapTicks, ticks() - start);
  t.counters.add(Counter::kProtectionFaults);
  if (word.has(PageWord::kPrefetched)) t.counters.add(Counter::kPrefetchUsed);
  return true;
}

void FaultPath::take_frame(ThreadSlot& t) {
  if (c_.frames.low()) c_.evictors.wake();
  if (c_.frames.try_take(1)) return;
  if (!c_.evictors.available()) return c_.frames.force_take(1);
  uint64_t start = ticks(), started_ns = now_ns();
  t.counters.add(Counter::kFrameWaits);
  bool warned = false;
  for (unsigned spins = 0;; spins++) {
    c_.evictors.wake();
    uint32_t seen = c_.frames.released().value();
    if (c_.frames.try_take(1)) break;
    if (spins < 500) {
      cpu_relax();
      continue;
    }
    c_.frames.released().wait(seen, 1000000);
    if (!warned && now_ns() - started_ns > 10ull * 1000 * 1000 * 1000) {
      warned = true;
      log(LogLevel::kWarning, "a thread has waited 10 s for near memory: system calls in progress hold all of it; raise --local");
    }
  }
  t.counters.add(Counter::kWaitFrameTicks, ticks() - start);
}

// Brings an absent page near, and a window of others with it where the faults follow a stride.
bool FaultPath::bring(ThreadSlot& t, PageIndex page, PageWord word, bool write) {
  take_frame(t);
  PageState state = word.state();
  if (!c_.table[page].try_change(word, word.with_state(PageState::kFetching).with_owner(t.index))) {
    c_.frames.give(1);
    return false;
  }
  inject::pause("fault:claimed");
  Claim claim;
  claim.pages[claim.count++] = page;
  if (prefetch_) claim_window(t, claim, state, write);
  if (state == PageState::kUntouched) fill_with_zeros(t, claim, write);
  else fetch(t, claim, write);
  inject::pause("fault:mapped");
  publish(t, claim, write, word);
  t.repeats = 0;  // faults that fetch something are no endless ones
  return true;
}

void FaultPath::claim_window(ThreadSlot& t, Claim& claim, PageState state, bool write) {
  Window window = t.prefetcher.on_fault(claim.pages[0]);
  // Untouched pages come ahead only of a stream of writes: a page that is only read costs nothing until then.
  bool far = state == PageState::kFar;
  if (far && t.prefetcher.used_window() > 0) t.counters.add(Counter::kPrefetchUsed, t.prefetcher.used_window());
  if (window.count == 0) return;
  unsigned wanted = far || write ? window.count : 0;
  uint64_t room = c_.frames.limit() / 32;
  if (wanted > room) wanted = static_cast<unsigned>(room);
  auto page = static_cast<int64_t>(claim.pages[0]);
  unsigned reached = 0;
  for (; reached < wanted; reached++) {
    page += window.stride;
    if (page < 0 || page >= static_cast<int64_t>(c_.table.pages())) break;
    auto index = static_cast<PageIndex>(page);
    PageWord word = c_.table[index].load();
    if (word.is(PageState::kUnmapped) || word.has(PageWord::kSealed)) break;
    if (!word.is(state)) continue;
    if (c_.frames.scarce() || !c_.frames.try_take(1)) break;
    if (c_.table[index].try_change(word, word.with_state(PageState::kFetching).with_owner(t.index))) {
      claim.pages[claim.count++] = index;
    } else {
      c_.frames.give(1);
    }
  }
  t.prefetcher.taken(reached, far ? claim.count - 1 : 0);
}

void FaultPath::fill_with_zeros(ThreadSlot& t, const Claim& claim, bool write) {
  t.counters.add(Counter::kZeroFaults, claim.count);
  c_.budget.populate(claim.count);
  map_runs(t, claim, nullptr, write);
}

void FaultPath::fetch(ThreadSlot& t, const Claim& claim, bool write) {
  t.counters.add(Counter::kMajorFaults);
  t.counters.add(Counter::kPrefetched, claim.count - 1);
  t.counters.add(Counter::kBytesFetched, claim.count * kPageSize);
  transport::Channel& channel = channel_of(t, c_.store);
  if (channel.direct(0, kPageSize)) {
    map_runs(t, claim, channel.direct(0, kPageSize), write);
    return;
  }
  read_into_buffer(t, claim);
  map_runs(t, claim, t.buffer, write);
}

void FaultPath::read_into_buffer(ThreadSlot& t, const Claim& claim) {
  uint64_t start = ticks();
  transport::Channel& channel = channel_of(t, c_.store);
  if (!t.buffer) t.buffer = static_cast<std::byte*>(near_alloc(ThreadSlot::kBufferPages * kPageSize));
  transport::Segment segments[Prefetcher::kMaxWindow + 1];
  for (unsigned i = 0; i < claim.count; i++) {
    segments[i] = {PageTable::far_of(claim.pages[i]), kPageSize, t.buffer + i * kPageSize};
  }
  transport::Token token = 0;
  int error = channel.submit_read({segments, claim.count}, &token);
  if (error == 0) error = channel.wait(token, kTransportTimeoutNs);
  if (error) die_of_lost_memory(c_.store, claim.count, error);
  t.counters.add(Counter::kFetchTicks, ticks() - start);
}

// Maps the claimed pages in runs of neighbours, one system call each. `content` holds one page after another in the
// order of the claim; or it is the whole far region (direct access), told by its channel; or nullptr for zeros.
void FaultPath::map_runs(ThreadSlot& t, const Claim& claim, const std::byte* content, bool write) {
  uint64_t start = ticks();
  bool buffered = content && content == t.buffer;
  for (unsigned i = 0; i < claim.count;) {
    unsigned run = 1;
    while (i + run < claim.count && claim.pages[i + run] == claim.pages[i] + run) run++;
    const std::byte* from = !content ? kZeros : content + (buffered ? i * kPageSize : PageTable::far_of(claim.pages[i]));
    map_run(claim.pages[i], run, from, write);
    i += run;
  }
  t.counters.add(Counter::kMapTicks, ticks() - start);
}

void FaultPath::map_run(PageIndex first, unsigned count, const std::byte* content, bool write) {
  int error = c_.space.map(c_.table.address_of(first), content, count * kPageSize, !write);
  if (error == 0) return;
  if (error == -ENOENT && count > 1) {  // mprotect split the space here: the kernel maps no run across the border
    for (unsigned i = 0; i < count; i++) map_run(first + i, 1, content + i * kPageSize, write);
    return;
  }
  if (error == -ENOMEM) die("the machine is out of memory: the kernel has no page for {} pages of near memory; lower --local", count);
  die("internal error: cannot map page {} (error {})", first, -error);
}

// The pages are mapped: other threads may use them from now on. A page that left only a moment ago and was wanted again
// at once starts hot, so that a working set larger than the queue's youth is recognized.
void FaultPath::publish(ThreadSlot& t, const Claim& claim, bool write, PageWord before) {
  bool stored = before.is(PageState::kFar);
  bool hot = stored && c_.evictors.left_recently(before);
  uint64_t flags = (write ? PageWord::kDirty : 0) | (stored ? PageWord::kStored : 0);
  if (write) t.counters.add(Counter::kPresumedDirty, claim.count - 1);
  for (unsigned i = 0; i < claim.count; i++) {
    uint64_t extra = i > 0 ? (stored ? PageWord::kPrefetched : 0) : (hot ? PageWord::kHot : 0);
    c_.table[claim.pages[i]].update([&](PageWord w) { return w.with_state(PageState::kNear).with(flags | extra); });
    c_.policy.insert(t.index, claim.pages[i]);
  }
}

}  // namespace farside::pager
