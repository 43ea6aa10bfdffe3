#include "pager/extent_path.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/inject.h"
#include "base/log.h"
#include "base/os.h"
#include "base/service_thread.h"

namespace farside::pager {
namespace {

// "always [madvise] never": the setting in brackets.
std::string_view thp_setting(std::span<char> buffer) {
  int fd = os::open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  ssize_t bytes = os::read(fd, buffer.data(), buffer.size());
  os::close(fd);
  std::string_view text(buffer.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  size_t begin = text.find('['), end = text.find(']');
  return begin < end && end != text.npos ? text.substr(begin + 1, end - begin - 1) : std::string_view();
}

}  // namespace

void ExtentPath::open() {
  if (use_ == HugePages::kNever || c_.twins.enabled()) return;
  char buffer[64];
  std::string_view setting = thp_setting(buffer);
  if (setting != "always" && setting != "madvise") return;
  bool disabled = os::call(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) != 0;
  thp_always_ = setting == "always" && !disabled;
  thp_advised_ = !disabled;
  ContentSums::init();
  c_.pool.open();
}

// Calls visit(extent) for each extent of which the range has pages. None where there are no extents.
template <typename Visit>
void ExtentPath::for_each_extent(PageIndex first, uint64_t count, Visit visit) {
  if (!is_open() || count == 0) return;
  ExtentIndex last = extent_of(static_cast<PageIndex>(first + count - 1));
  for (ExtentIndex e = extent_of(first); e <= last && e < c_.extents.count(); e++) visit(e);
}

void ExtentPath::forget_advice(PageIndex first, uint64_t count) {
  for_each_extent(first, count, [&](ExtentIndex e) { c_.extents.forget_advice(e); });
}

void ExtentPath::advise(PageIndex first, uint64_t count, int advice) {
  for_each_extent(first, count, [&](ExtentIndex e) {
    if (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE) {
      c_.extents.clear(e, ExtentTable::kAdviseHuge | ExtentTable::kAdviseNone);
      c_.extents.set(e, advice == MADV_HUGEPAGE ? ExtentTable::kAdviseHuge : ExtentTable::kAdviseNone);
    } else if (advice == MADV_SEQUENTIAL) {
      c_.extents.set(e, ExtentTable::kSequential);
    } else {
      c_.extents.clear(e, ExtentTable::kSequential);
    }
  });
}

// ---- Faults ----

bool ExtentPath::fault_in(const Caller& caller, PageIndex page, PageWord word, bool write) {
  ExtentIndex extent = extent_of(page);
  if (!is_enabled() || caller.may_suspend || extent >= c_.extents.count()) return false;
  ThreadSlot& t = caller.thread;
  bool untouched = word.is(PageState::kUntouched);
  ExtentStreams::Stream& stream = record_fault(t, page);
  if (c_.extents.has(extent, ExtentTable::kRefused)) return false;
  if (untouched && wants_first_touch(extent) && fill_first_touch(t, extent)) {
    ExtentStreams::pass_extent(stream, extent);
    return true;
  }
  if (c_.extents.has(extent, ExtentTable::kSequential)) stream.passed = ExtentStreams::kSure;
  if (!stream.is_sure())
    return !untouched && c_.density.expects_use(extent) && fetch(t, extent, write, ExtentQueue::kMain);
  if (stream.direction == 0) stream.direction = 1;
  write |= stream.writes;
  if (untouched ? !write || !fill_stream(t, extent) : !fetch(t, extent, write, ExtentQueue::kRecent)) return false;
  ExtentStreams::pass_extent(stream, extent);
  start_ahead(t, stream, write);
  return true;
}

ExtentStreams::Stream& ExtentPath::record_fault(ThreadSlot& t, PageIndex page) {
  return t.extent_streams.on_fault(page, [this](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      PageWord word = c_.table[static_cast<PageIndex>(p)].load();
      if (word.is(PageState::kFar) || word.is(PageState::kUntouched)) return false;
    }
    return true;
  });
}

bool ExtentPath::may_follow(const ExtentStreams::Stream& stream, ExtentIndex extent, ExtentIndex* next) const {
  if (stream.direction < 0 && extent == 0) return false;
  *next = stream.direction > 0 ? extent + 1 : extent - 1;
  return *next < c_.extents.count() && !c_.extents.has(*next, ExtentTable::kRefused);
}

void ExtentPath::shorten(ThreadSlot& t, Window& window) {
  ExtentStreams::Stream& stream = t.extent_streams.current();
  bool applies = is_enabled() && window.count > 0 && window.stride == stream.direction && stream.is_sure();
  if (!applies || window.from < 0) return;
  auto extent = extent_of(static_cast<PageIndex>(window.from));
  int64_t last = window.stride > 0 ? int64_t{first_page(extent)} + kExtentPages - 1 : int64_t{first_page(extent)};
  auto room = static_cast<uint64_t>(window.stride > 0 ? last - window.from : window.from - last);
  ExtentIndex next;
  if (window.count <= room || !may_follow(stream, extent, &next) || !comes_whole(next)) return;
  window.count = static_cast<unsigned>(room);
}

bool ExtentPath::start_next(ThreadSlot& t, const Window& window, bool write) {
  ExtentStreams::Stream& stream = t.extent_streams.current();
  bool applies = is_enabled() && window.stride == stream.direction && stream.is_sure() && window.from >= 0;
  if (!applies || window.count > 0) return false;
  auto from = static_cast<PageIndex>(window.from);
  bool at_end = from % kExtentPages == (stream.direction > 0 ? kExtentPages - 1 : 0);
  if (!at_end) return false;
  ExtentStreams::Stream ahead = stream;
  ExtentStreams::pass_extent(ahead, extent_of(from));
  start_ahead(t, ahead, write);
  return true;
}

// As the kernel would: by its setting, the program's advice, and only while memory is not short.
bool ExtentPath::wants_first_touch(ExtentIndex extent) const {
  if (use_ == HugePages::kAlways) return true;
  if (c_.extents.has(extent, ExtentTable::kAdviseNone)) return false;
  return thp_always_ || (thp_advised_ && c_.extents.has(extent, ExtentTable::kAdviseHuge));
}

// New frames only while at least an eighth of near memory is free.
bool ExtentPath::fill_first_touch(ThreadSlot& t, ExtentIndex extent) {
  constexpr uint64_t kSpareShare = 8;
  uint64_t spare = c_.frames.limit() / kSpareShare;
  if (c_.frames.used() + kExtentPages + spare > c_.frames.limit()) return false;
  if (!is_untouched(extent)) return false;
  Slot slot = c_.pool.take();
  bool is_zero = slot < 0;
  if (is_zero) slot = c_.pool.grow(spare);
  return slot >= 0 && fill(t, extent, slot, is_zero, ExtentQueue::kMain);
}

// A stream of first writes.
bool ExtentPath::fill_stream(ThreadSlot& t, ExtentIndex extent) {
  if (!is_untouched(extent)) return false;
  Slot slot = take_frame(true);
  return slot >= 0 && fill(t, extent, slot, false, c_.frames.evicted() == 0 ? ExtentQueue::kMain : ExtentQueue::kNew);
}

bool ExtentPath::fill(ThreadSlot& t, ExtentIndex extent, Slot slot, bool is_zero, ExtentQueue::Kind kind) {
  ExtentFetch fetch;
  fetch.extent = extent;
  fetch.slot = slot;
  fetch.write = true;
  fetch.hot = kind == ExtentQueue::kMain;
  claim(t, extent, &fetch.claimed, &fetch.empty);
  if (!fetch.claimed.is_full() || !fetch.empty.is_full()) {
    unclaim(extent, fetch.claimed, fetch.empty);
    c_.pool.put(slot);
    return false;
  }
  inject::pause("extent:claimed");
  if (!is_zero) memset(c_.pool.address_of(slot), 0, kExtentBytes);
  t.counters.add(Counter::kExtentsFilled);
  t.counters.add(Counter::kZeroFaults, kExtentPages);
  move_in(t, fetch);
  return true;
}

// kind: the queue that it enters at least.
bool ExtentPath::fetch(ThreadSlot& t, ExtentIndex extent, bool write, ExtentQueue::Kind kind) {
  if (!c_.pool.is_hopeful() || !comes_whole(extent)) return false;
  Slot slot = take_frame(true);  // before the lock: no other thread waits while this one waits for a frame
  if (slot < 0) return false;
  ReadQueueLock lock(t.reads);
  ExtentFetch* fetch = start(t, extent, write, slot);
  if (!fetch) return false;
  fetch->hot |= kind == ExtentQueue::kMain;
  t.counters.add(Counter::kMajorFaults);
  finish(t, t, *fetch);
  return true;
}

// Only if reading it can overlap with the program: the read takes time, or an evictor does it.
void ExtentPath::start_ahead(ThreadSlot& t, const ExtentStreams::Stream& stream, bool write) {
  ExtentIndex extent = extent_of(static_cast<PageIndex>(stream.next < 0 ? 0 : stream.next));
  bool exists = stream.next >= 0 && extent < c_.extents.count() && !c_.extents.has(extent, ExtentTable::kRefused);
  if (!exists) return;
  if (t.ahead_pause > 0) t.ahead_pause--;
  bool delegates = t.ahead_pause == 0 && c_.evictors.has_spare_core();
  {
    ReadQueueLock lock(t.reads);
    bool immediate = t.reads.channel(c_.store).mapping().immediate;
    if ((immediate && !delegates) || !comes_whole(extent)) return;
    Slot slot = take_frame(false);
    if (slot < 0 || !start(t, extent, write, slot)) return;
  }
  if (delegates) c_.evictors.request_mapping(t);
}

bool ExtentPath::fetch_announced(ThreadSlot& t, ExtentIndex extent, bool write, bool wait) {
  if (!is_enabled() || extent >= c_.extents.count() || c_.extents.has(extent, ExtentTable::kRefused)) return false;
  if (is_untouched(extent)) return write && wants_first_touch(extent) && fill_first_touch(t, extent);
  if (!comes_whole(extent)) return false;
  Slot slot = take_frame(wait);
  if (slot < 0) return false;
  {
    ReadQueueLock lock(t.reads);
    bool immediate = t.reads.channel(c_.store).mapping().immediate;
    if (!t.reads.free_extent(immediate ? 0 : ExtentFetch::kMaxRequests)) drain(t, t);
    if (!start(t, extent, write, slot)) return false;
  }
  if (c_.evictors.has_spare_core()) c_.evictors.request_mapping(t);
  return true;
}

// ---- Claims ----

bool ExtentPath::is_untouched(ExtentIndex extent) {
  for (PageIndex page = first_page(extent), end = page + kExtentPages; page < end; page++) {
    if (!c_.table[page].load().is(PageState::kUntouched) || is_excluded(c_.table[page].load())) return false;
  }
  return true;
}

bool ExtentPath::is_excluded(PageWord word) {
  return (word.bits() & (PageWord::kSealed | PageWord::kObjects | PageWord::kObjectPath)) != 0;
}

// Most of its pages are far. Pages that are near are copied, which costs more than to read them.
bool ExtentPath::comes_whole(ExtentIndex extent) {
  constexpr unsigned kMaxNear = kExtentPages * 3 / 8, kMinFar = kExtentPages / 2;
  unsigned near = 0, far = 0;
  for (PageIndex page = first_page(extent), end = page + kExtentPages; page < end; page++) {
    PageWord word = c_.table[page].load();
    bool usable = word.is(PageState::kFar) || word.is(PageState::kUntouched) || word.is(PageState::kNear);
    if (!usable || is_excluded(word)) return false;
    near += word.is(PageState::kNear);
    far += word.is(PageState::kFar);
  }
  return near <= kMaxNear && far >= kMinFar;
}

// Claims those pages that are kFar or kUntouched.
void ExtentPath::claim(ThreadSlot& t, ExtentIndex extent, ExtentBits* claimed, ExtentBits* empty) {
  for (unsigned i = 0; i < kExtentPages; i++) {
    bool untouched;
    if (!claim_page(t, first_page(extent) + i, &untouched)) continue;
    claimed->set(i);
    if (untouched) empty->set(i);
  }
}

bool ExtentPath::claim_page(ThreadSlot& t, PageIndex page, bool* untouched) {
  PageWord word = c_.table[page].load();
  *untouched = word.is(PageState::kUntouched);
  if ((!word.is(PageState::kFar) && !*untouched) || is_excluded(word)) return false;
  PageWord claimed = word.with_state(PageState::kFetching).with_owner(t.index);
  return c_.table[page].try_change(word, claimed.without(PageWord::kPrefetched | PageWord::kHot));
}

void ExtentPath::unclaim(ExtentIndex extent, const ExtentBits& claimed, const ExtentBits& empty) {
  for (unsigned i = 0; i < kExtentPages; i++) {
    if (!claimed.has(i)) continue;
    PageState before = empty.has(i) ? PageState::kUntouched : PageState::kFar;
    c_.table[first_page(extent) + i].update([&](PageWord w) { return w.with_state(before).with_owner(0); });
  }
}

// ---- Reads. The read queue is locked, here and below. ----

// A free frame; -1: none is ready. wait: for a while, since evictors make one ready; single pages would wait for them,
// too.
Slot ExtentPath::take_frame(bool wait) {
  constexpr unsigned kSpins = 500, kSleeps = 10;
  constexpr uint64_t kSleepNs = 100'000;
  c_.pool.ask();
  Slot slot = c_.pool.take();
  c_.evictors.request_frame();
  if (slot >= 0) return slot;
  c_.pool.ask_more();
  for (unsigned i = 0; wait && slot < 0 && i < kSpins + kSleeps && c_.evictors.available(); i++) {
    uint32_t seen = c_.frames.released().value();
    slot = c_.pool.take();
    if (slot >= 0 || !c_.pool.wants_frame()) break;
    if (i < kSpins) cpu_relax();
    else c_.frames.released().wait(seen, kSleepNs);
  }
  return slot;
}

// Claims the extent and starts to read it into the slot's frame. nullptr: too many reads are in flight, or another
// thread has claimed all of it; the frame is free again.
ExtentFetch* ExtentPath::start(ThreadSlot& t, ExtentIndex extent, bool write, Slot slot) {
  bool immediate = t.reads.channel(c_.store).mapping().immediate;
  unsigned requests = immediate ? 0 : ExtentFetch::kMaxRequests;
  ExtentFetch* fetch = t.reads.free_extent(requests);
  if (!fetch) {
    c_.pool.put(slot);
    return nullptr;
  }
  PageWord word = c_.table[first_page(extent)].load();
  PageWord last = c_.table[first_page(extent) + kExtentPages - 1].load();
  uint64_t age = c_.frames.age_of(word.epoch());
  *fetch = ExtentFetch();
  fetch->extent = extent;
  claim(t, extent, &fetch->claimed, &fetch->empty);
  if (fetch->claimed.count() == 0) {
    c_.pool.put(slot);
    return nullptr;
  }
  inject::pause("extent:claimed");
  bool presumed = !write && c_.extents.has(extent, ExtentTable::kWritten);
  fetch->write = write || presumed;
  fetch->hot = word.is(PageState::kFar) && c_.policy.is_hot(t.index, first_page(extent), word, age, c_.frames.limit());
  fetch->sums = presumed || (!write && !is_only_writer()) ? ExtentTable::make_sums() : nullptr;
  bool left_whole = word.is(PageState::kFar) && word.epoch() == last.epoch() && last.is(PageState::kFar);
  if (left_whole) c_.extent_queue.record_return(age);
  t.reads.started(*fetch, slot, requests);
  if (!immediate) submit(t, *fetch);
  t.counters.add(Counter::kReads);
  t.counters.add(Counter::kExtentsFetched);
  t.counters.add(Counter::kBytesFetched, kExtentBytes);
  return fetch;
}

void ExtentPath::submit(ThreadSlot& t, ExtentFetch& fetch) {
  constexpr uint32_t kBytes = ExtentFetch::kRequestPages * kPageSize;
  transport::Channel& channel = t.reads.channel(c_.store);
  uint64_t far = PageTable::far_of(first_page(fetch.extent));
  std::byte* near = c_.pool.address_of(fetch.slot);
  for (unsigned i = 0; i < ExtentFetch::kMaxRequests; i++) {
    transport::Segment segment = {far + i * kBytes, kBytes, near + i * kBytes};
    if (int error = channel.submit_read({&segment, 1}, &fetch.tokens[i])) die_of_lost_memory(c_.store, error);
  }
}

// Reads the next part of the extent. False: it has not arrived; only without `wait`.
bool ExtentPath::read_some(ThreadSlot& self, ThreadSlot& owner, ExtentFetch& fetch, bool wait) {
  constexpr unsigned kPagesAtOnce = 32;  // of what is copied here: the owner may wait for its queue meanwhile
  transport::Channel& channel = owner.reads.channel(c_.store);
  transport::Mapping far = channel.mapping();
  unsigned begin = fetch.filled;
  uint64_t start = ticks();
  if (far.immediate) {
    std::byte* to = c_.pool.address_of(fetch.slot) + begin * kPageSize;
    const std::byte* from = far.base + PageTable::far_of(first_page(fetch.extent) + begin);
    unsigned end = std::min(begin + kPagesAtOnce, kExtentPages);
    for (unsigned i = begin; i < end; i++) {  // sums are taken while the page is in the processor's cache
      memcpy(to + (i - begin) * kPageSize, from + (i - begin) * kPageSize, kPageSize);
      record_sums(fetch, i, i + 1);
    }
    fetch.filled = end;
    self.counters.add(Counter::kMapTicks, ticks() - start);
    return true;
  }
  transport::Token& token = fetch.tokens[begin / ExtentFetch::kRequestPages];
  int r = wait ? channel.wait(token, kTransportTimeoutNs) : channel.poll(token);
  if (r < 0) die_of_lost_memory(c_.store, r);
  if (!wait && r == 0) return false;
  token = 0;
  owner.reads.request_arrived();
  self.counters.add(Counter::kFetchTicks, ticks() - start);
  record_sums(fetch, begin, begin + ExtentFetch::kRequestPages);
  fetch.filled = begin + ExtentFetch::kRequestPages;
  return true;
}

void ExtentPath::record_sums(ExtentFetch& fetch, unsigned begin, unsigned end) {
  if (!fetch.sums) return;
  const std::byte* content = c_.pool.address_of(fetch.slot);
  for (unsigned i = begin; i < end; i++) fetch.sums[i] = ContentSums::of(content + i * kPageSize);
}

// ---- Completion ----

bool ExtentPath::advance(ThreadSlot& self, ThreadSlot& owner, bool move) {
  bool any = false;
  for (ExtentFetch& fetch : owner.reads.extents()) {
    if (fetch.is_free()) continue;
    if (!fetch.is_filled()) any |= read_some(self, owner, fetch, false);
    if (!fetch.is_filled() || !move) continue;
    finish(self, owner, fetch);
    any = true;
  }
  return any;
}

void ExtentPath::drain(ThreadSlot& self, ThreadSlot& owner) {
  for (ExtentFetch& fetch : owner.reads.extents()) {
    if (!fetch.is_free()) finish(self, owner, fetch);
  }
}

bool ExtentPath::finish_own(ThreadSlot& t, PageIndex page) {
  bool write;
  ExtentIndex extent = extent_of(page);
  {
    ReadQueueLock lock(t.reads);
    ExtentFetch* fetch = t.reads.find_extent(extent);
    if (!fetch) return false;
    write = fetch->write;
    count_ahead(t, *fetch);
    finish(t, t, *fetch);
  }
  ExtentStreams::Stream& stream = record_fault(t, page);
  if (!stream.is_sure()) return true;
  ExtentStreams::pass_extent(stream, extent);
  start_ahead(t, stream, write || stream.writes);
  return true;
}

// If evictors did not read several extents in time, no core is free for them.
void ExtentPath::count_ahead(ThreadSlot& t, const ExtentFetch& fetch) {
  constexpr unsigned kMisses = 4, kPause = 16;  // extents
  if (fetch.filled > 0) t.ahead_misses = 0;
  else if (t.ahead_pause == 0 && ++t.ahead_misses >= kMisses) t.ahead_pause = kPause, t.ahead_misses = kMisses - 1;
}

void ExtentPath::finish(ThreadSlot& self, ThreadSlot& owner, ExtentFetch& fetch) {
  while (!fetch.is_filled()) read_some(self, owner, fetch, true);
  uint64_t start = ticks();
  std::byte* content = c_.pool.address_of(fetch.slot);
  for (unsigned i = 0; i < kExtentPages; i++) {
    if (fetch.empty.has(i)) memset(content + i * kPageSize, 0, kPageSize);
  }
  if (fetch.claimed.is_full() || claim_near(fetch)) {
    copy_near(fetch);
    move_in(self, fetch);
    if (unsigned frames = fetch.near.count()) c_.frames.give(frames);
  } else {
    self.counters.add(Counter::kExtentsBroken);
    copy_in(self, fetch, 0);
  }
  self.counters.add(Counter::kMapTicks, ticks() - start);
  owner.reads.ended(fetch);
}

// Owns the pages that were near at the start of the read, to take their content into the frame. False: not all of them
// are near and free.
bool ExtentPath::claim_near(ExtentFetch& fetch) {
  PageIndex first = first_page(fetch.extent);
  for (unsigned i = 0; i < kExtentPages; i++) {
    if (fetch.claimed.has(i)) continue;
    PageWord word = c_.table[first + i].load();
    bool claimed = false;
    while (!claimed && word.is(PageState::kNear) && word.pins() == 0 && !word.has(PageWord::kUpgrading) &&
           !word.is_free() && !is_excluded(word)) {
      claimed = c_.table[first + i].try_change(word, word.with_state(PageState::kEvicting).with_owner(0));
    }
    if (claimed) {
      fetch.near.set(i);
      continue;
    }
    for (unsigned k = 0; k < i; k++) {
      if (!fetch.near.has(k)) continue;
      c_.table[first + k].update([](PageWord w) { return w.with_state(PageState::kNear); });
      c_.policy.insert(0, first + k);  // an evictor may have taken it out of its queue meanwhile
    }
    fetch.near = ExtentBits();
    return false;
  }
  return true;
}

// Protected first, so that no store is lost. The pages are unmapped when the frame takes their place.
void ExtentPath::copy_near(ExtentFetch& fetch) {
  if (fetch.near.count() == 0) return;
  std::byte* address = c_.table.address_of(first_page(fetch.extent));
  if (int error = c_.space.write_protect(address, kExtentBytes, true))
    die("internal error: cannot protect page {} (error {})", first_page(fetch.extent), -error);
  inject::pause("extent:protected");
  std::byte* content = c_.pool.address_of(fetch.slot);
  for (unsigned i = 0; i < kExtentPages; i++) {
    if (!fetch.near.has(i)) continue;
    memcpy(content + i * kPageSize, address + i * kPageSize, kPageSize);
    if (!fetch.sums) continue;
    // The sum of a changed page must not be that of its content, which the server does not have.
    bool changed = c_.table[first_page(fetch.extent) + i].load().has(PageWord::kDirty);
    fetch.sums[i] = ContentSums::of(content + i * kPageSize) ^ (changed ? 1 : 0);
  }
}

// No other thread of the program, nor another process with its memory, may write while this one does not.
bool ExtentPath::is_only_writer() const {
  if (other_writers_.load(std::memory_order_relaxed)) return false;
  return os::thread_count() == static_cast<int>(ServiceThread::count()) + 1;
}

// ---- Mapping ----

// All pages of the extent are owned, and their content is in the frame. The page table of an extent that was mapped by
// pages must go before a huge page can take its place: the kernel frees it (6.14 and later) when all of its range is
// dropped.
void ExtentPath::move_in(ThreadSlot& self, ExtentFetch& fetch) {
  std::byte* address = c_.table.address_of(first_page(fetch.extent));
  PageRun whole = {address, kExtentBytes};
  if (int error = c_.space.unmap({&whole, 1})) die("internal error: cannot clear page tables (error {})", -error);
  bool alone = !fetch.sums && is_only_writer();
  long moved = c_.space.move(address, c_.pool.address_of(fetch.slot), kExtentBytes);
  inject::pause("extent:moved");
  if (moved > 0 && !fetch.write) {
    if (int error = c_.space.write_protect(address, static_cast<size_t>(moved), true))
      die("internal error: cannot protect page {} (error {})", first_page(fetch.extent), -error);
  }
  if (moved == static_cast<long>(kExtentBytes)) {
    c_.pool.put_empty(fetch.slot);
    return publish(fetch, alone);
  }
  self.counters.add(Counter::kExtentsBroken);
  if (moved == -EINVAL) c_.extents.set(fetch.extent, ExtentTable::kRefused);  // the program divided its mapping
  copy_in(self, fetch, moved > 0 ? static_cast<uint64_t>(moved) : 0);
}

// Maps what is owned of the extent page by page; it did not come whole, or the kernel refused. The first `moved` bytes
// are in place. For a moment up to 2 MiB more are near than the budget counts.
void ExtentPath::copy_in(ThreadSlot& self, ExtentFetch& fetch, uint64_t moved) {
  PageIndex first = first_page(fetch.extent);
  std::byte* to = c_.table.address_of(first);
  const std::byte* content = c_.pool.address_of(fetch.slot);
  uint64_t owned = 0;
  for (unsigned i = 0; i < kExtentPages; i++) {
    PageWord word = c_.table[first + i].load();
    if (!fetch.claimed.has(i) && !fetch.near.has(i)) continue;
    bool is_moved = i * kPageSize < moved;
    bool changed = word.has(PageWord::kDirty);
    bool write = fetch.write || changed;
    int error = is_moved ? 0 : c_.space.map(to + i * kPageSize, content + i * kPageSize, kPageSize, !write);
    if (error == -ENOMEM) die("the machine is out of memory: the kernel has no page for near memory; lower --local");
    if (error) die("internal error: cannot map page {} (error {})", first + i, -error);
    // What was moved may have been written before it was protected.
    uint64_t flags = write ? PageWord::kDirty : 0;
    if (is_moved && !fetch.write) flags = PageWord::kDirty | PageWord::kCow;
    c_.table[first + i].update(
        [&](PageWord w) { return w.with_state(PageState::kNear).with_owner(0).without(PageWord::kCow).with(flags); });
    c_.policy.insert(self.index, first + i);
    owned++;
  }
  if (unsigned empty = fetch.empty.count()) c_.budget.populate(empty);
  ExtentTable::free_sums(fetch.sums);
  c_.pool.drop_copied(fetch.slot);
  c_.frames.give(kExtentPages - owned);
}

// From now on other threads may use the pages. Their words have kExtent before the extent is queued. Unless this thread
// is the only writer, what was fetched for reads may have been written before it was protected.
void ExtentPath::publish(const ExtentFetch& fetch, bool alone) {
  c_.extents.set_sums(fetch.extent, fetch.sums);
  uint64_t flags = PageWord::kExtent | (fetch.write ? PageWord::kDirty : 0);
  for (unsigned i = 0; i < kExtentPages; i++) {
    PageWord old = c_.table[first_page(fetch.extent) + i].update([&](PageWord w) {
      PageWord near = w.with_state(PageState::kNear).with_owner(0).with(flags);
      if (fetch.write) return near.without(PageWord::kCow);
      bool clean = alone && !w.has(PageWord::kDirty);
      return clean ? near.without(PageWord::kCow) : near.with(PageWord::kDirty | PageWord::kCow);
    });
    FARSIDE_CHECK(old.is(fetch.claimed.has(i) ? PageState::kFetching : PageState::kEvicting));
  }
  inject::pause("extent:published");
  if (unsigned empty = fetch.empty.count()) c_.budget.populate(empty);
  c_.extent_queue.push(fetch.extent, queue_of(fetch));
}

ExtentQueue::Kind ExtentPath::queue_of(const ExtentFetch& fetch) {
  if (fetch.hot) return ExtentQueue::kMain;
  return fetch.empty.is_full() ? ExtentQueue::kNew : ExtentQueue::kRecent;
}

// ---- First writes ----

// A program that writes the pages of an extent in turn, from its beginning or its end. A single write makes a single
// page writable, which splits the mapping of the huge page.
bool ExtentPath::upgrades_whole(PageIndex page, PageWord word) {
  if (!word.has(PageWord::kExtent)) return false;
  unsigned at = page % kExtentPages;
  if (at == 0 || at == kExtentPages - 1) return true;
  return c_.table[page - 1].load().writable() || c_.table[page + 1].load().writable();
}

// Owns those pages that can be, as FaultPath::upgrade does with one, and makes each run of them writable by one call.
void ExtentPath::upgrade(ThreadSlot& t, PageIndex page, bool* read_only) {
  ExtentIndex extent = extent_of(page);
  PageIndex first = first_page(extent), end = first + kExtentPages;
  constexpr uint64_t kOwn = PageWord::kDirty | PageWord::kUpgrading;
  auto own = [&](PageIndex p) {
    for (PageWord w = c_.table[p].load(); w.is(PageState::kNear) && w.has(PageWord::kExtent);) {
      if (w.has(PageWord::kUpgrading) || w.writable() || w.is_free()) return false;
      if (c_.table[p].try_change(w, w.with(kOwn).without(PageWord::kCow | PageWord::kPrefetched))) return true;
    }
    return false;
  };
  *read_only = false;
  for (PageIndex begin = first; begin < end;) {
    PageIndex reached = begin;
    while (reached < end && own(reached)) reached++;
    size_t bytes = (reached - begin) * kPageSize;
    if (bytes > 0) *read_only |= !lift_protection(begin, bytes);
    begin = std::max(reached, begin + 1);
  }
  t.counters.add(Counter::kExtentsUpgraded);
  t.counters.add(Counter::kProtectionFaults);
  c_.extents.set(extent, ExtentTable::kWritten);
  t.extent_streams.record_write(extent);
}

// Of pages that are being upgraded. False: the program has made them read-only; they are protected again.
bool ExtentPath::lift_protection(PageIndex first, size_t bytes) {
  inject::pause("extent:upgrading");
  std::byte* address = c_.table.address_of(first);
  int error = c_.space.write_protect(address, bytes, false);
  bool writable = !error && c_.space.make_own(address, bytes) == 0;
  if (!error && !writable) error = c_.space.write_protect(address, bytes, true);
  if (error) die("internal error: cannot change the protection of page {} (error {})", first, -error);
  uint64_t cow = writable ? 0 : PageWord::kCow;
  for (PageIndex p = first, end = first + static_cast<PageIndex>(bytes / kPageSize); p < end; p++) {
    PageWord old = c_.table[p].update([&](PageWord w) { return w.without(PageWord::kUpgrading).with(cow); });
    FARSIDE_CHECK(old.is(PageState::kNear) && old.has(PageWord::kUpgrading));
  }
  return writable;
}

}  // namespace farside::pager
