#include "pager/fault_path.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/inject.h"
#include "base/log.h"
#include "fiber/wait.h"

namespace farside::pager {
namespace {

constexpr uint64_t kTransportTimeoutNs = 30ull * 1000 * 1000 * 1000;

// Source of zero pages. Read-only data: the kernel backs it once for everybody.
alignas(kPageSize) const std::byte kZeros[Claim::kMaxPages * kPageSize] = {};

}  // namespace

void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error) {
  die("memory server {} is lost (error {}): {} pages of this program's memory were there; the program cannot go on. "
      "Restart it, and look at the server's log",
      store->address(), -error, page_count);
}

FaultOutcome FaultPath::fault(uint64_t address, bool write, bool may_suspend) {
  ThreadSlot& t = c_.threads.current();
  uint64_t start = ticks();
  c_.gate.enter(t);
  t.counters.add(Counter::kFaults);
  FaultOutcome outcome = resolve(t, c_.table.index_of(address), write, may_suspend);
  c_.gate.leave(t);
  uint64_t took = ticks() - start;
  t.counters.add(Counter::kFaultTicks, took);
  t.fault_times.put(took);
  return outcome;
}

FaultOutcome FaultPath::resolve(ThreadSlot& t, PageIndex page, bool write, bool may_suspend) {
  for (;;) {
    PageWord word = c_.table[page].load();
    switch (word.state()) {
      case PageState::kUnmapped:
        return FaultOutcome::kNotMapped;
      case PageState::kUntouched:
      case PageState::kFar:
        if (word.has(PageWord::kSealed)) return FaultOutcome::kNotMapped;
        if (fault_in(t, page, word, write, may_suspend)) return FaultOutcome::kResolved;
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
        if (word.owner() == t.index) {
          if (may_suspend) suspend_fiber(t, page);
          else if (!finish_own(t, page)) wait_for_owner(t, page);
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
    PageWord w = c_.table[page].load();
    if (w.is(PageState::kFetching) && spins % 64 == 63) {
      ThreadSlot* owner = c_.threads.at(w.owner());
      if (owner && complete_arrived(t, *owner)) continue;
    }
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

// Other fibers of this worker run while the page comes; their faults and poll_reads finish this worker's reads. The
// fiber goes on with the same worker, so the slot stays the same. Outside the gate: a fork may come in between.
void FaultPath::suspend_fiber(ThreadSlot& t, PageIndex page) {
  auto settled = [](void* word) {
    PageWord w = static_cast<AtomicPageWord*>(word)->load();
    return !w.is(PageState::kFetching) && !w.is(PageState::kEvicting);
  };
  c_.gate.leave(t);
  fibers::wait_until(settled, &c_.table[page]);
  c_.gate.enter(t);
}

void FaultPath::poll_reads() {
  ThreadSlot& t = c_.threads.current();
  if (!t.reads.is_reading()) return;
  InGate inside(c_.gate, t);
  complete_arrived(t, t);
}

// First write to a page that came for reading. The upgrading bit keeps evictors and layout changes off until the
// protection is lifted: a late unprotect of a page that went away and came back would lose its next writes.
bool FaultPath::upgrade(ThreadSlot& t, PageIndex page, PageWord word, FaultOutcome* outcome) {
  PageWord changed = word.with(PageWord::kDirty | PageWord::kHot | PageWord::kUpgrading | PageWord::kWriteFollows)
                         .without(PageWord::kCow | PageWord::kPrefetched);
  if (!c_.table[page].try_change(word, changed)) return false;
  inject::pause("fault:upgrading");
  uint64_t start = ticks();
  std::byte* address = c_.table.address_of(page);
  if (word.has(PageWord::kStored) && !word.has(PageWord::kDirty)) c_.twins.make(page, address, t.index);
  if (int error = c_.space.write_protect(address, kPageSize, false)) {
    die("internal error: cannot lift the write protection of page {} (error {})", page, -error);
  }
  // After a fork the frame may be shared: make the kernel copy it now, while no evictor can hold the old frame. Where
  // the program has made the page read-only this fails, and the page is protected again: it was a stale message of a
  // handler, or a system call that will get EFAULT.
  bool shared = word.has(PageWord::kCow) || c_.space.shares_unprotected_frames();
  if (shared && c_.space.make_own(address) != 0) {
    if (int error = c_.space.write_protect(address, kPageSize, true))
      die("internal error: cannot protect page {} (error {})", page, -error);
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

bool FaultPath::try_take_frame(ThreadSlot& t) { return c_.frames.try_take(t.spare_frames, c_.threads.count()); }

void FaultPath::take_frame(ThreadSlot& t) {
  if (c_.frames.low()) c_.evictors.wake();
  if (try_take_frame(t)) return;
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
    // Frames may lie idle with other threads, or with pages of reads that nobody has asked for since: near, they can
    // be evicted.
    c_.threads.for_each([&](ThreadSlot& other) {
      c_.threads.reclaim_spare(other);
      complete_arrived(t, other);
    });
    c_.frames.released().wait(seen, 1000000);
    if (!warned && now_ns() - started_ns > 10ull * 1000 * 1000 * 1000) {
      warned = true;
      log(LogLevel::kWarning,
          "a thread has waited 10 s for near memory: system calls in progress hold all of it; raise --local");
    }
  }
  uint64_t waited = ticks() - start;
  t.counters.add(Counter::kWaitFrameTicks, waited);
  t.frame_waits.put(waited);
}

// Brings an absent page near, or starts to read it, and a window of others with it where the faults follow a stride.
bool FaultPath::fault_in(ThreadSlot& t, PageIndex page, PageWord word, bool write, bool may_suspend) {
  PageState state = word.state();
  if (state == PageState::kFar) t.reads.prefetch(PageTable::far_of(page));
  take_frame(t);
  if (!c_.table[page].try_change(word, word.with_state(PageState::kFetching).with_owner(t.index))) {
    t.spare_frames.put(1);
    return false;
  }
  inject::pause("fault:claimed");
  t.repeats = 0;  // faults that fetch something are no endless ones
  Claim claim;
  claim.pages[claim.count++] = page;
  claim.write = write;
  claim.hot = state == PageState::kFar && c_.evictors.evicted_recently(word);
  Window next;
  if (prefetch_) next = claim_window(t, claim, state);
  if (!write && claim.count == 1) claim.write = presume_write(t, page, word);
  if (state == PageState::kFar) t.counters.add(Counter::kMajorFaults);
  if (state == PageState::kUntouched) {
    fill_with_zeros(t, claim);
  } else {
    fetch(t, claim, may_suspend);
    start_next_window(t, next, write);
  }
  return c_.table[page].load().is(PageState::kNear);
}

// A page that was read first and then written in its last stay is mapped writable at once: the write would fault again,
// and cost twice as much as the page's being written back for nothing. One stay in four, by a hash of the page and the
// time it left, is used to see whether it still is so.
bool FaultPath::presume_write(ThreadSlot& t, PageIndex page, PageWord word) {
  if (!word.has(PageWord::kWriteFollows)) return false;
  uint32_t hash = (page + word.epoch() * 0x9e3779b1u) * 0x85ebca6bu;
  if (hash >> 30 == 0) {
    c_.table[page].clear(PageWord::kWriteFollows);
    return false;
  }
  t.counters.add(Counter::kPresumedDirty);
  return true;
}

// Adds the window of the stream that this fault continues, and returns the window after it.
Window FaultPath::claim_window(ThreadSlot& t, Claim& claim, PageState state) {
  Window window = t.prefetcher.on_fault(claim.pages[0]);
  bool far = state == PageState::kFar;
  if (far && t.prefetcher.used_window() > 0) t.counters.add(Counter::kPrefetchUsed, t.prefetcher.used_window());
  if (window.count == 0) return {};
  // Untouched pages come ahead only of a stream of writes: a page that is only read costs nothing until then.
  unsigned reached = far || claim.write ? claim_pages(t, claim, window, state) : 0;
  t.prefetcher.taken(reached, far ? claim.count - 1 : 0);
  return claim.count > 1 ? t.prefetcher.next_window() : Window();
}

// Claims those pages of the window that are in the wanted state, as far as frames can be had. Returns how many pages of
// the window were passed.
unsigned FaultPath::claim_pages(ThreadSlot& t, Claim& claim, const Window& window, PageState state) {
  uint64_t room = c_.frames.limit() / 32;
  unsigned wanted = window.count < room ? window.count : static_cast<unsigned>(room);
  int64_t page = window.from;
  unsigned reached = 0;
  for (; reached < wanted && !claim.is_full(); reached++) {
    page += window.stride;
    if (page < 0 || page >= static_cast<int64_t>(c_.table.pages())) break;
    auto index = static_cast<PageIndex>(page);
    PageWord word = c_.table[index].load();
    if (word.is(PageState::kUnmapped) || word.has(PageWord::kSealed)) break;
    if (!word.is(state) || word.has(PageWord::kObjectPath)) continue;
    if (c_.frames.scarce() || !try_take_frame(t)) break;
    if (c_.table[index].try_change(word, word.with_state(PageState::kFetching).with_owner(t.index))) {
      claim.pages[claim.count++] = index;
    } else {
      t.spare_frames.put(1);
    }
  }
  return reached;
}

void FaultPath::fill_with_zeros(ThreadSlot& t, const Claim& claim) {
  t.counters.add(Counter::kZeroFaults, claim.count);
  c_.budget.populate(claim.count);
  map_and_publish(t, claim, 0, claim.count, {kZeros, true}, false);
}

// Where far memory can be read in place, the pages are mapped at once. Else a read is started for them, and whoever
// needs the pages finishes it. The reads of fibers go out together where that takes no time to speak of.
void FaultPath::fetch(ThreadSlot& t, const Claim& claim, bool may_suspend) {
  t.counters.add(Counter::kReads);
  t.counters.add(Counter::kPrefetched, claim.count - (claim.ahead ? 0 : 1));
  t.counters.add(Counter::kBytesFetched, claim.count * kPageSize);
  ReadQueueLock lock(t.reads);
  const std::byte* far = claim.ahead ? nullptr : t.reads.channel(c_.store).direct(0, kPageSize);
  if (!far) {
    start_read(t, claim, may_suspend && fibers::polls_soon());
    return;
  }
  map_and_publish(t, claim, 0, claim.count, {far, false}, true);
}

// Has the next window of a stream under way while the last one is used, and mapped by a background thread. Not where
// nothing is under way and nobody maps in time; nor where the buffers for it, 260 KiB a stream, would take too much of
// the budget from the pages themselves.
void FaultPath::start_next_window(ThreadSlot& t, const Window& window, bool write) {
  if (window.count == 0) return;
  if (t.ahead_pause > 0) t.ahead_pause--;
  bool asks = t.ahead_pause == 0 && c_.evictors.has_spare_core();
  bool costly = c_.budget.metadata_bytes() > c_.frames.limit() * kPageSize / 6;
  if (costly || (!asks && reads_directly(t))) return;
  Claim claim;
  claim.write = write;
  claim.ahead = true;
  unsigned reached = claim_pages(t, claim, window, PageState::kFar);
  t.prefetcher.under_way(reached, claim.count, claim.pages[0]);
  if (claim.count == 0) return;
  fetch(t, claim, false);
  if (claim.count == 1 || !asks) return;
  t.reads.wants_mapping.store(true, std::memory_order_release);
  c_.evictors.request_background_work();
}

bool FaultPath::reads_directly(ThreadSlot& t) {
  ReadQueueLock lock(t.reads);
  return t.reads.channel(c_.store).direct(0, kPageSize) != nullptr;
}

// The line's lock is held, here and in finish_oldest.
void FaultPath::start_read(ThreadSlot& t, const Claim& claim, bool gather) {
  Fetch* fetch = t.reads.free_fetch();
  for (; !fetch; fetch = t.reads.free_fetch()) finish_oldest(t);
  static_cast<Claim&>(*fetch) = claim;
  transport::Channel& channel = t.reads.channel(c_.store);
  fetch->content = {channel.in_place(0, kPageSize), false};
  if (channel.direct(0, kPageSize)) return t.reads.started(*fetch, Fetch::Progress::kArrived);
  if (!fetch->content.bytes) {
    fetch->make_room();
    fetch->content = {fetch->buffer, true};
  }
  transport::Segment segments[Claim::kMaxPages];
  for (unsigned i = 0; i < claim.count; i++) {
    std::byte* to = fetch->content.packed ? fetch->buffer + i * kPageSize : nullptr;
    segments[i] = {PageTable::far_of(claim.pages[i]), kPageSize, to};
  }
  channel.gather(gather);
  int error = channel.submit_read({segments, claim.count}, &fetch->token);
  if (error) die_of_lost_memory(c_.store, claim.count, error);
  t.reads.started(*fetch, Fetch::Progress::kInFlight);
}

// The page is being fetched for this thread, perhaps by a read that went on while the program ran. False: somebody else
// has finished it meanwhile.
bool FaultPath::finish_own(ThreadSlot& t, PageIndex page) {
  bool marker, write;
  {
    ReadQueueLock lock(t.reads);
    Fetch* fetch = t.reads.find(page);
    if (!fetch) return false;
    marker = fetch->ahead && fetch->pages[0] == page;
    write = fetch->write;
    if (marker) note_ahead(t, *fetch);
    // Who maps the window goes on with it: the stream needs only this page at once.
    bool goes_on = marker && fetch->mapped > 1 && fetch->mapped < fetch->count;
    if (goes_on) finish_first(t, *fetch);
    else finish(t, t, *fetch);
  }
  if (!marker) return true;
  Window window = t.prefetcher.on_fault(page);
  t.counters.add(Counter::kPrefetchUsed, t.prefetcher.used_window());
  start_next_window(t, window, write);
  return true;
}

// Waits for a read of the owner's line and maps its pages. The caller holds the line.
void FaultPath::finish(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch) {
  if (fetch.progress == Fetch::Progress::kInFlight) {
    uint64_t start = ticks();
    int error = owner.reads.channel(c_.store).wait(fetch.token, kTransportTimeoutNs);
    if (error) die_of_lost_memory(c_.store, fetch.count, error);
    self.counters.add(Counter::kFetchTicks, ticks() - start);
  }
  finish_arrived(self, owner, fetch);
}

// Maps what is not mapped yet.
void FaultPath::finish_arrived(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch) {
  if (!fetch.first_mapped) finish_first(self, fetch);
  map_and_publish(self, fetch, fetch.mapped, fetch.count, fetch.content, true);
  owner.reads.ended(fetch);
}

void FaultPath::finish_first(ThreadSlot& self, Fetch& fetch) {
  map_and_publish(self, fetch, 0, 1, fetch.content, true);
  fetch.first_mapped = true;
}

void FaultPath::finish_oldest(ThreadSlot& t) { finish(t, t, *t.reads.oldest()); }

// Asks without waiting. The caller holds the line.
bool FaultPath::has_arrived(ThreadSlot& owner, Fetch& fetch) {
  if (fetch.progress == Fetch::Progress::kArrived) return true;
  int r = owner.reads.channel(c_.store).poll(fetch.token);
  if (r < 0) die_of_lost_memory(c_.store, fetch.count, r);
  if (r > 0) fetch.progress = Fetch::Progress::kArrived;
  return r > 0;
}

// Finishes those reads of a line that have arrived, unless somebody is at it. True: something was finished. They arrive
// in order, so after the first that is still under way none is asked for: each question is a system call.
bool FaultPath::complete_arrived(ThreadSlot& self, ThreadSlot& owner) {
  if (!owner.reads.is_reading() || !owner.reads.try_lock()) return false;
  bool any = finish_subpage_reads(owner, false);
  for (Fetch* oldest; (oldest = owner.reads.oldest()) && has_arrived(owner, *oldest); any = true) {
    finish_arrived(self, owner, *oldest);
  }
  owner.reads.unlock();
  return any;
}

// ---- Pieces of far pages ----

void FaultPath::read_subpages(std::span<SubpageRead> pieces, bool may_suspend) {
  ThreadSlot& t = c_.threads.current();
  transport::Segment segments[SubpageRead::kMaxPerRequest];
  size_t count = 0;
  SubpageReadGroup read;
  const std::byte* in_place;
  {
    InGate inside(c_.gate, t);
    ReadQueueLock lock(t.reads);
    transport::Channel& channel = t.reads.channel(c_.store);
    const std::byte* direct = channel.direct(0, kPageSize);
    in_place = direct ? direct : channel.in_place(0, kPageSize);
    for (SubpageRead& p : pieces) {
      PageIndex page = c_.table.index_of(p.address);
      p.read = c_.table[page].load().is(PageState::kFar);
      if (!p.read) continue;
      uint64_t far = PageTable::far_of(page) + p.address % kPageSize;
      t.counters.add(Counter::kSubpageReads);
      t.counters.add(Counter::kBytesFetched, p.bytes);
      if (direct) memcpy(p.to, direct + far, p.bytes);
      else segments[count++] = {far, p.bytes, in_place ? nullptr : p.to};
    }
    if (count == 0) return;
    read.segments = {segments, count};
    t.reads.queued(read);
    // A fiber's read goes out when its worker polls, together with those of others.
    bool gathers = may_suspend && fibers::polls_soon();
    if (!gathers) send_subpage_reads(t);
    if (!may_suspend) {
      uint64_t start = ticks();
      while (!read.done.load(std::memory_order_relaxed)) finish_subpage_reads(t, true);
      t.counters.add(Counter::kFetchTicks, ticks() - start);
    }
  }
  if (may_suspend) {
    fibers::wait_until([](void* r) { return static_cast<SubpageReadGroup*>(r)->done.load(std::memory_order_acquire); },
                       &read);
  }
  if (!in_place) return;
  for (SubpageRead& p : pieces) {
    if (p.read) memcpy(p.to, in_place + (p.address - reinterpret_cast<uint64_t>(c_.space.base())), p.bytes);
  }
}

// All that are queued. The line's lock is held, here and below.
void FaultPath::send_subpage_reads(ThreadSlot& t) {
  transport::Channel& channel = t.reads.channel(c_.store);
  while (t.reads.subpage_reads().has_queued()) {
    int error = t.reads.subpage_reads().is_full() ? -EAGAIN : t.reads.subpage_reads().send(channel);
    if (error == 0) continue;
    if (error != -EAGAIN) die_of_lost_memory(c_.store, 1, error);
    if (!finish_subpage_reads(t, true)) finish_oldest(t);  // too many requests under way
  }
}

// Those that have arrived; with wait, the oldest at least. Then sends what has been queued.
bool FaultPath::finish_subpage_reads(ThreadSlot& owner, bool wait) {
  SubpageReadQueue& pieces = owner.reads.subpage_reads();
  if (pieces.empty()) return false;
  transport::Channel& channel = owner.reads.channel(c_.store);
  bool any = false;
  for (;;) {
    size_t reads = 0;
    int r = pieces.finish_oldest(channel, wait && !any, kTransportTimeoutNs, &reads);
    if (r < 0) die_of_lost_memory(c_.store, 1, r);
    if (r == 0) break;
    owner.reads.subpage_reads_done(reads);
    any = true;
  }
  while (pieces.should_send()) {
    int error = pieces.send(channel);
    if (error == -EAGAIN) break;
    if (error) die_of_lost_memory(c_.store, 1, error);
  }
  return any;
}

// ---- Mapping ahead, on another core where one is free ----

bool FaultPath::map_ahead() {
  ThreadSlot& self = c_.threads.current();
  if (!c_.gate.try_enter(self)) return false;
  bool any = false, more = false;
  c_.threads.for_each([&](ThreadSlot& owner) {
    if (!owner.reads.wants_mapping.load(std::memory_order_acquire)) return;
    any |= map_ahead_of(self, owner);
    more |= owner.reads.wants_mapping.load(std::memory_order_relaxed);
  });
  c_.gate.leave(self);
  if (more) c_.evictors.request_background_work();
  return any;
}

// A few pages at a time: their owner may be waiting for its line.
bool FaultPath::map_ahead_of(ThreadSlot& self, ThreadSlot& owner) {
  constexpr unsigned kAtOnce = 16;
  if (!owner.reads.try_lock()) return false;
  Fetch* fetch = owner.reads.ahead();
  bool any = fetch && has_arrived(owner, *fetch);
  if (any) {
    uint64_t start = ticks();
    unsigned begin = fetch->mapped, end = std::min(begin + kAtOnce, fetch->count);
    map_runs(*fetch, begin, end, fetch->content);
    inject::pause("fault:mapped");
    publish(self, *fetch, begin, end, true);
    fetch->mapped = end;
    if (end == fetch->count && fetch->first_mapped) owner.reads.ended(*fetch);
    self.counters.add(Counter::kMappedAhead, end - begin);
    self.counters.add(Counter::kAheadTicks, ticks() - start);
  }
  if (!owner.reads.ahead()) owner.reads.wants_mapping.store(false, std::memory_order_relaxed);
  owner.reads.unlock();
  return any;
}

// The stream has come to the window: has somebody mapped it meanwhile? Where no core is free for that, nobody is asked
// again for a while.
void FaultPath::note_ahead(ThreadSlot& t, const Fetch& fetch) {
  constexpr unsigned kMisses = 4, kPause = 64;  // windows
  if (fetch.count < Prefetcher::kMaxWindow / 2) return;
  if (fetch.mapped > 1) t.ahead_misses = 0;
  else if (t.ahead_pause == 0 && ++t.ahead_misses >= kMisses) t.ahead_pause = kPause, t.ahead_misses = kMisses - 1;
}

// ---- Hints ----

// Pages ahead are good enough when the nearer half is there, so that the others come many at a time.
bool FaultPath::is_satisfied(const Hint& hint) {
  constexpr uint64_t kMaxPages = 64;
  if (hint.bytes == 0 || hint.bytes > kMaxPages * kPageSize || hint.behind > 0) return false;
  uint64_t end = hint.address + hint.bytes - 1;
  if (!c_.table.contains(hint.address) || !c_.table.contains(end)) return false;
  uint64_t first = c_.table.index_of(hint.address), last = c_.table.index_of(end);
  uint64_t ahead = std::min<uint64_t>(last + (hint.ahead + 1) / 2, c_.table.pages() - 1);
  for (uint64_t page = first; page <= ahead; page++) {
    PageWord word = c_.table[static_cast<PageIndex>(page)].load();
    if (page > last && word.is(PageState::kFetching)) continue;
    if (!word.is(PageState::kNear) || word.has(PageWord::kUpgrading) || word.priority() != hint.priority) return false;
    if (page <= last && hint.write && !word.writable()) return false;
  }
  for (uint64_t page = first; page <= last; page++) note_use(static_cast<PageIndex>(page));
  return true;
}

// The first use of a page that came ahead makes it no hotter than one that was fetched when it was used; the second
// does. Advice only: the page may leave meanwhile.
void FaultPath::note_use(PageIndex page) {
  AtomicPageWord& word = c_.table[page];
  PageWord now = word.load();
  if (now.has(PageWord::kPrefetched)) word.clear(PageWord::kPrefetched);
  else if (!now.has(PageWord::kHot)) word.set(PageWord::kHot);
}

unsigned FaultPath::hint(const Hint& hint, bool may_suspend) {
  ThreadSlot& t = c_.threads.current();
  InGate inside(c_.gate, t);
  t.counters.add(Counter::kHints);
  PageIndex first = c_.table.index_of(hint.address);
  uint64_t end = c_.table.contains(hint.address + hint.bytes - 1) ? hint.address + hint.bytes - 1 : hint.address;
  PageIndex last = c_.table.index_of(end);
  if (hint.bytes == 0 || !c_.table.contains(hint.address) || c_.table[first].load().is(PageState::kUnmapped)) {
    t.counters.add(Counter::kHintsWild);
    return 0;
  }
  // A hint may not push out everything else, whatever its size.
  auto most = static_cast<PageIndex>(std::min<uint64_t>(kMaxHintPages, c_.frames.limit() / 8));
  if (last - first >= most) last = first + most - 1;
  HintClaims claims;
  claims.far.write = claims.untouched.write = hint.write;
  for (PageIndex page = first; page <= last; page++) hint_page(t, claims, page, hint, true, may_suspend);
  for (uint64_t i = 1; i <= hint.ahead && last + i < c_.table.pages(); i++) {
    if (!hint_page(t, claims, static_cast<PageIndex>(last + i), hint, false, may_suspend)) break;
  }
  for (uint64_t i = 1; i <= hint.behind && i <= first; i++) {
    if (!hint_page(t, claims, static_cast<PageIndex>(first - i), hint, false, may_suspend)) break;
  }
  flush(t, claims, may_suspend);
  bool suspended = false;
  for (PageIndex page = first; hint.wait && page <= last; page++) {
    PageWord word = c_.table[page].load();
    if (!word.is(PageState::kFetching) || word.owner() != t.index) continue;
    if (may_suspend) suspend_fiber(t, page);
    else finish_own(t, page);
    suspended = may_suspend;
  }
  // Only pages ahead were missing, and nobody waits for them: what was gathered must not stay behind for that.
  if (may_suspend && !suspended && claims.fetched > 0) complete_arrived(t, t);
  return claims.fetched;
}

// False: nothing more is to be had in this direction.
bool FaultPath::hint_page(ThreadSlot& t, HintClaims& claims, PageIndex page, const Hint& hint, bool asked,
                          bool may_suspend) {
  PageWord word = c_.table[page].load();
  if (word.is(PageState::kUnmapped) || word.has(PageWord::kSealed)) return false;
  if (word.priority() != hint.priority) {
    constexpr uint64_t kPriority = uint64_t{3} << PageWord::kPriorityShift;
    c_.table[page].update(
        [&](PageWord w) { return w.without(kPriority).with(uint64_t{hint.priority} << PageWord::kPriorityShift); });
  }
  if (asked && word.is(PageState::kNear)) note_use(page);
  if (asked && hint.write && word.is(PageState::kNear) && !word.writable() && !word.has(PageWord::kUpgrading)) {
    FaultOutcome outcome;
    upgrade(t, page, c_.table[page].load(), &outcome);
    return true;
  }
  bool far = word.is(PageState::kFar);
  if (!far && !(hint.write && word.is(PageState::kUntouched))) return true;
  Claim& claim = far ? claims.far : claims.untouched;
  if (claim.is_full()) flush(t, claims, may_suspend);
  if (c_.frames.low()) c_.evictors.wake();
  if (!try_take_frame(t)) return false;  // the access itself will wait for a frame, if it comes
  word = c_.table[page].load();
  bool same = word.is(far ? PageState::kFar : PageState::kUntouched) && !word.has(PageWord::kSealed);
  if (same && c_.table[page].try_change(word, word.with_state(PageState::kFetching).with_owner(t.index))) {
    claim.pages[claim.count++] = page;
  } else {
    t.spare_frames.put(1);
  }
  return true;
}

void FaultPath::flush(ThreadSlot& t, HintClaims& claims, bool may_suspend) {
  if (claims.untouched.count > 0) fill_with_zeros(t, claims.untouched);
  if (claims.far.count > 0) {
    t.counters.add(Counter::kHintsFetched, claims.far.count);
    claims.fetched += claims.far.count;
    fetch(t, claims.far, may_suspend);
  }
  claims.untouched.count = claims.far.count = 0;
}

void FaultPath::drain(ThreadSlot& self, ThreadSlot& owner) {
  if (!owner.reads.is_reading()) return;
  ReadQueueLock lock(owner.reads);
  while (!owner.reads.subpage_reads().empty()) finish_subpage_reads(owner, true);
  for (Fetch& f : owner.reads.fetches()) {
    if (!f.is_free()) finish(self, owner, f);
  }
}

// Maps pages [begin, end) of the claim, and says that they are there.
void FaultPath::map_and_publish(ThreadSlot& t, const Claim& claim, unsigned begin, unsigned end, const Content& content,
                                bool stored) {
  uint64_t start = ticks();
  for (unsigned i = begin; stored && claim.write && i < end; i++) {
    c_.twins.make(claim.pages[i], content.of(claim, i), t.index);
  }
  map_runs(claim, begin, end, content);
  uint64_t mapped = ticks();
  inject::pause("fault:mapped");
  publish(t, claim, begin, end, stored);
  t.counters.add(Counter::kMapTicks, mapped - start);
  t.counters.add(Counter::kAccountTicks, ticks() - mapped);
}

// In runs of neighbours, one system call each.
void FaultPath::map_runs(const Claim& claim, unsigned begin, unsigned end, const Content& content) {
  for (unsigned i = begin; i < end;) {
    unsigned run = 1;
    while (i + run < end && claim.pages[i + run] == claim.pages[i] + run) run++;
    map_run(claim.pages[i], run, content.of(claim, i), claim.write);
    i += run;
  }
}

void FaultPath::map_run(PageIndex first, unsigned count, const std::byte* content, bool write) {
  int error = c_.space.map(c_.table.address_of(first), content, count * kPageSize, !write);
  if (error == 0) return;
  if (error == -ENOENT && count > 1) {  // mprotect split the space here: the kernel maps no run across the border
    for (unsigned i = 0; i < count; i++) map_run(first + i, 1, content + i * kPageSize, write);
    return;
  }
  if (error == -ENOMEM)
    die("the machine is out of memory: the kernel has no page for {} pages of near memory; lower --local", count);
  die("internal error: cannot map page {} (error {})", first, -error);
}

// The pages are mapped: other threads may use them from now on. A page that left only a moment ago and was wanted again
// at once starts hot, so that a working set larger than the queue's youth is recognized.
void FaultPath::publish(ThreadSlot& t, const Claim& claim, unsigned begin, unsigned end, bool stored) {
  uint64_t flags = (claim.write ? PageWord::kDirty : 0) | (stored ? PageWord::kStored : 0);
  unsigned asked = claim.ahead ? 0 : 1;
  if (claim.write) t.counters.add(Counter::kPresumedDirty, end - std::min(end, std::max(begin, asked)));
  for (unsigned i = begin; i < end; i++) {
    uint64_t extra = i >= asked ? (stored ? PageWord::kPrefetched : 0) : (claim.hot ? PageWord::kHot : 0);
    c_.table[claim.pages[i]].update([&](PageWord w) { return w.with_state(PageState::kNear).with(flags | extra); });
    c_.policy.insert(t.index, claim.pages[i]);
  }
}

}  // namespace farside::pager
