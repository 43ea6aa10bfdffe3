#include "pager/fault/fetch_path.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/inject.h"
#include "base/log.h"
#include "fiber/wait.h"
#include "pager/shared/sample_log.h"

namespace farside::pager {
namespace {

// Source of zero pages. Read-only data: the kernel backs it once for all processes.
alignas(kPageSize) const std::byte kZeros[Claim::kMaxPages * kPageSize] = {};

}  // namespace

FetchPath::FetchPath(const PageMemory& pages, const ThreadsAndGate& inside, remote::RemoteStore* store,
                     EvictorGroup& evictors, HugePath& huge)
    : space_(pages.space),
      table_(pages.table),
      policy_(pages.policy),
      frames_(pages.frames),
      budget_(pages.budget),
      twins_(pages.twins),
      samples_(pages.samples),
      threads_(inside.threads),
      gate_(inside.gate),
      store_(store),
      evictors_(evictors),
      huge_(huge),
      max_spinning_(2 * std::max(1u, std::thread::hardware_concurrency())) {}

// ---- Claims ----

bool FetchPath::try_take_frame(ThreadSlot& t) { return frames_.try_take(t.spare_frames, threads_.count()); }

void FetchPath::take_frame(ThreadSlot& t) {
  if (frames_.low()) evictors_.wake();
  if (try_take_frame(t)) return;
  if (!evictors_.available()) return frames_.force_take(1);
  uint64_t start = ticks();
  t.counters.add(Counter::kFrameWaits);
  frames_.begin_wait();
  wait_for_frame(t);
  frames_.end_wait();
  uint64_t waited = ticks() - start;
  t.counters.add(Counter::kWaitFrameTicks, waited);
  t.frame_waits.put(waited);
}

void FetchPath::wait_for_frame(ThreadSlot& t) {
  constexpr unsigned kSpins = 500;
  constexpr uint64_t kWaitNs = 1'000'000;
  uint64_t start = now_ns();
  for (unsigned spins = 0; evictors_.available(); spins++) {
    evictors_.wake();
    uint32_t seen = frames_.released().value();
    if (frames_.try_take(1)) return;
    if (spins < kSpins && frames_.waiting() <= max_spinning_) {
      cpu_relax();
      continue;
    }
    complete_others(t);
    frames_.released().wait(seen, kWaitNs);
    warn_of_wait(start);
  }
  frames_.force_take(1);  // a fork has begun, or the evictors end for a while
}

// One line for all threads that wait, with those that hold near memory. System calls cannot hold all of it for so long
// (EvictorGroup::relieve_waiting), so the evictors wait for a server.
void FetchPath::warn_of_wait(uint64_t start) {
  constexpr uint64_t kWarnAfterNs = 10'000'000'000;
  uint64_t now = now_ns(), last = warned_ns_.load(std::memory_order_relaxed);
  if (now - std::max(start, last) < kWarnAfterNs || !warned_ns_.compare_exchange_strong(last, now)) return;
  char held[512];
  size_t used = 0;
  threads_.for_each([&](ThreadSlot& other) {
    int32_t pins = other.pinned.load(std::memory_order_relaxed);
    uint32_t spare = other.spare_frames.count();
    if (other.tid.load() == 0 || (pins <= 0 && spare == 0)) return;
    auto end = fmt::format_to_n(held + used, sizeof held - used, "; thread {} holds {} pinned pages, {} free frames",
                                other.tid.load(), pins, spare);
    used = std::min(used + end.size, sizeof held);
  });
  log(LogLevel::kWarning,
      "{} threads have waited 10 s for near memory: no page can be evicted, so a memory server does not respond; check "
      "the server and the network{}",
      frames_.waiting(), std::string_view(held, used));
}

// Other threads may have spare frames. Their reads may hold claimed pages that no thread waits for; once these are
// published, they can be evicted. One of many threads that wait does so for all.
void FetchPath::complete_others(ThreadSlot& t) {
  constexpr uint64_t kPauseNs = 50'000;
  uint64_t now = now_ns(), last = completed_others_ns_.load(std::memory_order_relaxed);
  if (now - last < kPauseNs || !completed_others_ns_.compare_exchange_strong(last, now)) return;
  threads_.for_each([&](ThreadSlot& other) {
    threads_.reclaim_spare(other);
    complete_arrived(t, other);
  });
}

bool FetchPath::claim(ThreadSlot& t, PageIndex page, PageWord word) {
  FARSIDE_DCHECK(word.is(PageState::kFar) || word.is(PageState::kUntouched));
  uint64_t age = frames_.age_of(word.epoch());
  bool hot = word.is(PageState::kFar) && !word.has(PageWord::kPrefetched) &&
             policy_.is_hot(t.index, page, word, age, frames_.limit());
  PageWord claimed = word.with_state(PageState::kFetching).with_owner(t.index).without(PageWord::kPrefetched);
  if (hot) claimed = claimed.with(PageWord::kHot);
  if (!table_[page].try_change(word, claimed)) {
    t.spare_frames.put(1);
    return false;
  }
  if (word.is(PageState::kFar)) t.refault_ages.put(age);
  samples_.add_page(word.is(PageState::kFar) ? SampleKind::kFetched : SampleKind::kTouched, page);
  return true;
}

unsigned FetchPath::claim_window(ThreadSlot& t, Claim& claimed, const Window& window, PageState state) {
  constexpr uint64_t kMaxShare = 64;  // of the budget, for one window
  auto wanted = static_cast<unsigned>(std::min<uint64_t>(window.count, frames_.limit() / kMaxShare));
  int64_t page = window.from;
  unsigned reached = 0;
  for (; reached < wanted && !claimed.is_full(); reached++) {
    page += window.stride;
    if (page < 0 || page >= static_cast<int64_t>(table_.pages())) break;
    auto index = static_cast<PageIndex>(page);
    PageWord word = table_[index].load();
    if (word.is_free() || word.has(PageWord::kSealed)) break;
    if (!word.is(state) || word.has(PageWord::kObjectPath)) continue;
    if (frames_.scarce() || !try_take_frame(t)) break;
    if (claim(t, index, word)) claimed.pages[claimed.count++] = index;
  }
  return reached;
}

// ---- Reads ----

void FetchPath::fill_with_zeros(ThreadSlot& t, const Claim& claim) {
  t.counters.add(Counter::kZeroFaults, claim.count);
  budget_.populate(claim.count);
  map_and_publish(t, claim, 0, claim.count, {kZeros, true}, false);
}

void FetchPath::fetch(const Caller& caller, const Claim& claim) {
  ThreadSlot& t = caller.thread;
  FARSIDE_DCHECK(claim.count > 0 && claim.count <= Claim::kMaxPages);
  t.counters.add(Counter::kReads);
  t.counters.add(Counter::kPrefetched, claim.count - (claim.ahead ? 0 : 1));
  t.counters.add(Counter::kBytesFetched, claim.count * kPageSize);
  ReadQueueLock lock(t.reads);
  transport::Mapping far = t.reads.channel(store_).mapping();
  if (far.immediate && !claim.ahead) return map_and_publish(t, claim, 0, claim.count, {far.base, false}, true);
  bool waits_at_once = !claim.ahead && claim.count == 1 && !caller.may_suspend;
  start_read(t, claim, waits_at_once || (caller.may_suspend && fibers::polls_soon()));
}

// Starts a read of the next window only if it can overlap with the program: the read takes time, or an evictor maps the
// window. And only while the buffers, 260 KiB for each stream, leave most of the budget to pages.
void FetchPath::start_next_window(ThreadSlot& t, const Window& window, bool write) {
  constexpr uint64_t kMaxMetadataShare = 6;
  if (huge_.start_next(t, window, write) || window.count == 0) return;
  if (t.ahead_pause > 0) t.ahead_pause--;
  bool delegates = t.ahead_pause == 0 && evictors_.has_spare_core();
  if (budget_.metadata_bytes() > frames_.limit() * kPageSize / kMaxMetadataShare) return;
  if (!delegates && !t.reads.proceeds_alone(store_)) return;
  Claim claimed;
  claimed.write = write;
  claimed.ahead = true;
  unsigned reached = claim_window(t, claimed, window, PageState::kFar);
  t.prefetcher.record_next_window(reached, claimed.count, claimed.pages[0]);
  if (claimed.count == 0) return;
  fetch({t}, claimed);
  if (claimed.count == 1 || !delegates) return;
  evictors_.request_mapping(t);
}

// The lock of the read queue is held, here and in finish_oldest.
void FetchPath::start_read(ThreadSlot& t, const Claim& claim, bool gather) {
  FARSIDE_DCHECK(t.reads.is_locked());
  Fetch* fetch = t.reads.free_fetch();
  for (; !fetch; fetch = t.reads.free_fetch()) finish_oldest(t);
  static_cast<Claim&>(*fetch) = claim;
  transport::Channel& channel = t.reads.channel(store_);
  transport::Mapping far = channel.mapping();
  fetch->content = {far.base, false};
  if (far.immediate) return t.reads.started(*fetch, Fetch::Progress::kArrived);
  if (!far.base) {
    fetch->make_room();
    fetch->content = {fetch->buffer, true};
  }
  transport::ByteRange ranges[Claim::kMaxPages];
  for (unsigned i = 0; i < claim.count; i++) {
    std::byte* to = fetch->content.packed ? fetch->buffer + i * kPageSize : nullptr;
    ranges[i] = {PageTable::far_of(claim.pages[i]), kPageSize, to};
  }
  channel.gather(gather);
  int error = channel.submit_read({ranges, claim.count}, &fetch->token);
  if (error) die_of_lost_memory(store_, error);
  t.reads.started(*fetch, Fetch::Progress::kInFlight);
}

// ---- Completion ----

bool FetchPath::finish_own(ThreadSlot& t, PageIndex page) {
  bool marker, write;
  if (!finish_fetch_of(t, page, &marker, &write)) return huge_.finish_own(t, page);
  record_used(t, page);
  if (!marker) return true;
  Window window = t.prefetcher.on_fault(page);
  record_used_window(t);
  huge_.record_fault(t, page);
  huge_.shorten(t, window);
  start_next_window(t, window, write);
  return true;
}

// marker: the page is the first one of a window that was fetched ahead. write: the window is mapped writable.
bool FetchPath::finish_fetch_of(ThreadSlot& t, PageIndex page, bool* marker, bool* write) {
  ReadQueueLock lock(t.reads);
  Fetch* fetch = t.reads.find(page);
  if (!fetch) return false;
  *marker = fetch->ahead && fetch->pages[0] == page;
  *write = fetch->write;
  if (*marker) count_ahead(t, *fetch);
  // If an evictor is mapping the window, it continues. The stream needs only this page at once.
  bool continues = *marker && fetch->mapped > 1 && fetch->mapped < fetch->count;
  if (continues) finish_first(t, *fetch);
  else finish(t, t, *fetch);
  return true;
}

void FetchPath::record_used_window(ThreadSlot& t) {
  unsigned used = t.prefetcher.used_window();
  if (used == 0) return;
  Window passed = t.prefetcher.passed();
  for (unsigned i = 1; i <= passed.count; i++) {
    record_used(t, static_cast<PageIndex>(passed.from + passed.stride * static_cast<int64_t>(i)));
  }
}

void FetchPath::record_used(ThreadSlot& t, PageIndex page) {
  if (!table_[page].load().has(PageWord::kPrefetched)) return;
  if (table_[page].clear(PageWord::kPrefetched).has(PageWord::kPrefetched)) t.counters.add(Counter::kPrefetchUsed);
}

// Waits for a read and maps its pages. The owner's queue is locked, here and down to has_arrived.
void FetchPath::finish(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch) {
  FARSIDE_DCHECK(owner.reads.is_locked() && !fetch.is_free());
  if (fetch.progress == Fetch::Progress::kInFlight) {
    uint64_t start = ticks();
    int error = owner.reads.channel(store_).wait(fetch.token, kTransportTimeoutNs);
    if (error) die_of_lost_memory(store_, error);
    self.counters.add(Counter::kFetchTicks, ticks() - start);
  }
  finish_arrived(self, owner, fetch);
}

// Maps the pages of an arrived read that are not mapped yet.
void FetchPath::finish_arrived(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch) {
  FARSIDE_DCHECK(owner.reads.is_locked());
  if (!fetch.first_mapped) finish_first(self, fetch);
  map_and_publish(self, fetch, fetch.mapped, fetch.count, fetch.content, true);
  owner.reads.ended(fetch);
}

void FetchPath::finish_first(ThreadSlot& self, Fetch& fetch) {
  FARSIDE_DCHECK(!fetch.first_mapped);
  map_and_publish(self, fetch, 0, 1, fetch.content, true);
  fetch.first_mapped = true;
}

void FetchPath::finish_oldest(ThreadSlot& t) { finish(t, t, *t.reads.oldest()); }

// Never waits.
bool FetchPath::has_arrived(ThreadSlot& owner, Fetch& fetch) {
  if (fetch.progress == Fetch::Progress::kArrived) return true;
  int r = owner.reads.channel(store_).poll(fetch.token);
  if (r < 0) die_of_lost_memory(store_, r);
  if (r > 0) fetch.progress = Fetch::Progress::kArrived;
  return r > 0;
}

// Reads arrive in order, so after the first that is in flight none is polled: each poll is a system call.
bool FetchPath::complete_arrived(ThreadSlot& self, ThreadSlot& owner) {
  if (!owner.reads.is_reading() || !owner.reads.try_lock()) return false;
  bool any = finish_subpage_reads(owner, false);
  for (Fetch* oldest; (oldest = owner.reads.oldest()) && has_arrived(owner, *oldest); any = true) {
    finish_arrived(self, owner, *oldest);
  }
  any |= huge_.advance(self, owner, true);
  owner.reads.unlock();
  return any;
}

void FetchPath::poll_reads() {
  ThreadSlot& t = threads_.current();
  if (!t.reads.is_reading()) return;
  InGate inside(gate_, t);
  complete_arrived(t, t);
}

void FetchPath::drain(ThreadSlot& self, ThreadSlot& owner) {
  if (!owner.reads.is_reading()) return;
  ReadQueueLock lock(owner.reads);
  while (!owner.reads.subpage_reads().empty()) finish_subpage_reads(owner, true);
  for (Fetch& f : owner.reads.fetches()) {
    if (!f.is_free()) finish(self, owner, f);
  }
  huge_.drain(self, owner);
  FARSIDE_CHECK(!owner.reads.is_reading());
}

bool FetchPath::map_ahead() {
  ThreadSlot& self = threads_.current();
  if (!gate_.try_enter(self)) return false;
  bool any = false, more = false;
  threads_.for_each([&](ThreadSlot& owner) {
    if (!owner.reads.wants_mapping.load(std::memory_order_acquire)) return;
    any |= map_ahead_of(self, owner);
    more |= owner.reads.wants_mapping.load(std::memory_order_relaxed);
  });
  gate_.leave(self);
  if (more) evictors_.request_background_work();
  return any;
}

// A few pages at a time, since the owner may be waiting for its queue.
bool FetchPath::map_ahead_of(ThreadSlot& self, ThreadSlot& owner) {
  constexpr unsigned kAtOnce = 16;
  if (!owner.reads.try_lock()) return false;
  Fetch* fetch = owner.reads.ahead();
  bool arrived = fetch && has_arrived(owner, *fetch);
  bool any = arrived || huge_.advance(self, owner, false);
  if (arrived) {
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
  if (!owner.reads.ahead() && !owner.reads.unfilled_huge())
    owner.reads.wants_mapping.store(false, std::memory_order_relaxed);
  owner.reads.unlock();
  return any;
}

// The stream has reached the window. If evictors did not map several windows in a row in time, no core is free for
// them, and they are not requested to for a while.
void FetchPath::count_ahead(ThreadSlot& t, const Fetch& fetch) {
  constexpr unsigned kMisses = 4, kPause = 64;  // windows
  if (fetch.count < Prefetcher::kMaxWindow / 2) return;
  if (fetch.mapped > 1) t.ahead_misses = 0;
  else if (t.ahead_pause == 0 && ++t.ahead_misses >= kMisses) t.ahead_pause = kPause, t.ahead_misses = kMisses - 1;
}

// ---- Mapping ----

// Maps and publishes pages [begin, end) of the claim. stored: the server has this content.
void FetchPath::map_and_publish(ThreadSlot& t, const Claim& claim, unsigned begin, unsigned end, const Content& content,
                                bool stored) {
  uint64_t start = ticks();
  for (unsigned i = begin; stored && claim.write && i < end; i++) {
    twins_.make(claim.pages[i], content.of(claim, i), t.index);
  }
  map_runs(claim, begin, end, content);
  uint64_t mapped = ticks();
  inject::pause("fault:mapped");
  publish(t, claim, begin, end, stored);
  t.counters.add(Counter::kMapTicks, mapped - start);
  t.counters.add(Counter::kAccountTicks, ticks() - mapped);
}

// One system call for each run of neighbours.
void FetchPath::map_runs(const Claim& claim, unsigned begin, unsigned end, const Content& content) {
  for (unsigned i = begin; i < end;) {
    unsigned run = 1;
    auto adjoins = [&](unsigned next) {
      return claim.pages[next] == claim.pages[next - 1] + 1 && table_.is_followed(claim.pages[next - 1]);
    };
    while (i + run < end && adjoins(i + run)) run++;
    map_run(claim.pages[i], run, content.of(claim, i), claim.write);
    i += run;
  }
}

void FetchPath::map_run(PageIndex first, unsigned count, const std::byte* content, bool write) {
  int error = space_.map(table_.address_of(first), content, count * kPageSize, !write);
  if (error == 0) return;
  if (error == -ENOENT && count > 1) {  // mprotect split the space here: the kernel maps no run across the border
    for (unsigned i = 0; i < count; i++) map_run(first + i, 1, content + i * kPageSize, write);
    return;
  }
  if (error == -ENOMEM)
    die("the machine is out of memory: the kernel has no page for {} pages of near memory; lower --local", count);
  die("internal error: cannot map page {} (error {})", first, -error);
}

// From now on other threads may use the pages, and evictors may select them.
void FetchPath::publish(ThreadSlot& t, const Claim& claim, unsigned begin, unsigned end, bool stored) {
  uint64_t flags = (claim.write ? PageWord::kDirty : 0) | (stored ? PageWord::kStored : 0);
  unsigned asked = claim.ahead ? 0 : 1;
  if (claim.write) t.counters.add(Counter::kPresumedDirty, end - std::min(end, std::max(begin, asked)));
  for (unsigned i = begin; i < end; i++) {
    uint64_t extra = i >= asked ? (stored ? PageWord::kPrefetched : 0) : 0;
    PageWord old = table_[claim.pages[i]].update(
        [&](PageWord w) { return w.with_state(PageState::kNear).with_owner(0).with(flags | extra); });
    FARSIDE_CHECK(old.is(PageState::kFetching));
    policy_.insert(t.index, claim.pages[i]);
  }
}

}  // namespace farside::pager
