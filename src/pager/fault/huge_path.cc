#include "pager/fault/huge_path.h"

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

void HugePath::open() {
  char buffer[64];
  std::string_view setting = usable_setting(buffer);
  if (setting.empty()) return;
  bool disabled = os::call(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) != 0;
  thp_always_ = setting == "always" && !disabled;
  thp_advised_ = !disabled;
  ContentSums::init();
  pool_.open();
}

bool HugePath::can_open() const {
  char buffer[64];
  return !usable_setting(buffer).empty();
}

// The kernel's setting, or "" where there are no huge pages.
std::string_view HugePath::usable_setting(std::span<char> buffer) const {
  if (use_ == HugePages::kNever || twins_.enabled() || !pool_.is_possible()) return {};
  std::string_view setting = thp_setting(buffer);
  return setting == "always" || setting == "madvise" ? setting : std::string_view();
}

// Calls visit(huge page) for each huge page of which the range has pages. None where huge pages are never used.
template <typename Visit>
void HugePath::for_each_huge(PageIndex first, uint64_t count, Visit visit) {
  if (count == 0 || use_ == HugePages::kNever || twins_.enabled()) return;
  HugeIndex last = huge_of(static_cast<PageIndex>(first + count - 1));
  for (HugeIndex e = huge_of(first); e <= last && e < huge_table_.count(); e++) visit(e);
}

void HugePath::forget_advice(PageIndex first, uint64_t count) {
  for_each_huge(first, count, [&](HugeIndex e) { huge_table_.forget_advice(e); });
}

void HugePath::advise(PageIndex first, uint64_t count, int advice) {
  for_each_huge(first, count, [&](HugeIndex e) {
    if (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE) {
      huge_table_.clear(e, HugeTable::kAdviseHuge | HugeTable::kAdviseNone);
      huge_table_.set(e, advice == MADV_HUGEPAGE ? HugeTable::kAdviseHuge : HugeTable::kAdviseNone);
    } else if (advice == MADV_SEQUENTIAL) {
      huge_table_.set(e, HugeTable::kSequential);
    } else {
      huge_table_.clear(e, HugeTable::kSequential);
    }
  });
}

// ---- Faults ----

bool HugePath::fault_in(const Caller& caller, PageIndex page, PageWord word, bool write) {
  HugeIndex huge = huge_of(page);
  if (!is_enabled() || caller.may_suspend || huge >= huge_table_.count()) return false;
  ThreadSlot& t = caller.thread;
  bool untouched = word.is(PageState::kUntouched);
  HugeStreams::Stream& stream = record_fault(t, page);
  if (huge_table_.has(huge, HugeTable::kRefused)) return false;
  if (untouched && wants_first_touch(huge) && fill_first_touch(t, huge)) {
    HugeStreams::pass_huge(stream, huge);
    return true;
  }
  if (huge_table_.has(huge, HugeTable::kSequential)) stream.passed = HugeStreams::kSure;
  if (!stream.is_sure()) return !untouched && fetch_dense(t, huge, write);
  if (!account_.pays()) return false;
  if (stream.direction == 0) stream.direction = 1;
  write |= stream.writes;
  if (untouched ? !write || !fill_stream(t, huge) : !fetch(t, huge, write, HugeQueue::kRecent)) return false;
  HugeStreams::pass_huge(stream, huge);
  start_ahead(t, stream, write);
  return true;
}

HugeStreams::Stream& HugePath::record_fault(ThreadSlot& t, PageIndex page) {
  return t.huge_streams.on_fault(page, [this](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      PageWord word = table_[static_cast<PageIndex>(p)].load();
      if (word.is(PageState::kFar) || word.is(PageState::kUntouched)) return false;
    }
    return true;
  });
}

void HugePath::record_fetch(const ThreadSlot& t, std::span<const PageIndex> pages, PageWord word) {
  HugeIndex huge = huge_of(pages[0]);
  if (!is_enabled() || huge >= huge_table_.count()) return;
  density_.record_fetch(huge, pages, [&] { return count_far(huge); });
  account_.record_refault(t.index, frames_.age_of(word.epoch()));
}

// Those that are being fetched included.
unsigned HugePath::count_far(HugeIndex huge) const {
  unsigned far = 0;
  for (PageIndex page = first_page(huge), end = page + kHugePages; page < end; page++) {
    PageWord word = table_[page].load();
    far += word.is(PageState::kFar) || word.is(PageState::kFetching);
  }
  return far;
}

bool HugePath::may_follow(const HugeStreams::Stream& stream, HugeIndex huge, HugeIndex* next) const {
  if (stream.direction < 0 && huge == 0) return false;
  *next = stream.direction > 0 ? huge + 1 : huge - 1;
  return *next < huge_table_.count() && !huge_table_.has(*next, HugeTable::kRefused);
}

void HugePath::shorten(ThreadSlot& t, Window& window) {
  HugeStreams::Stream& stream = t.huge_streams.current();
  bool applies = is_enabled() && window.count > 0 && window.stride == stream.direction && stream.is_sure();
  if (!applies || window.from < 0) return;
  auto huge = huge_of(static_cast<PageIndex>(window.from));
  int64_t last = window.stride > 0 ? int64_t{first_page(huge)} + kHugePages - 1 : int64_t{first_page(huge)};
  auto room = static_cast<uint64_t>(window.stride > 0 ? last - window.from : window.from - last);
  HugeIndex next;
  if (window.count <= room || !account_.pays() || !may_follow(stream, huge, &next) || !comes_whole(next)) return;
  window.count = static_cast<unsigned>(room);
}

bool HugePath::start_next(ThreadSlot& t, const Window& window, bool write) {
  HugeStreams::Stream& stream = t.huge_streams.current();
  bool applies = is_enabled() && window.stride == stream.direction && stream.is_sure() && window.from >= 0;
  if (!applies || window.count > 0) return false;
  auto from = static_cast<PageIndex>(window.from);
  bool at_end = from % kHugePages == (stream.direction > 0 ? kHugePages - 1 : 0);
  if (!at_end || !account_.pays()) return false;
  HugeStreams::Stream ahead = stream;
  HugeStreams::pass_huge(ahead, huge_of(from));
  start_ahead(t, ahead, write);
  return true;
}

// As the kernel would: by its setting, the program's advice, and only while memory is not short.
bool HugePath::wants_first_touch(HugeIndex huge) const {
  if (use_ == HugePages::kAlways) return true;
  if (huge_table_.has(huge, HugeTable::kAdviseNone)) return false;
  return thp_always_ || (thp_advised_ && huge_table_.has(huge, HugeTable::kAdviseHuge));
}

// New frames only while at least an eighth of near memory is free.
bool HugePath::fill_first_touch(ThreadSlot& t, HugeIndex huge) {
  constexpr uint64_t kSpareShare = 8;
  uint64_t spare = frames_.limit() / kSpareShare;
  if (frames_.used() + kHugePages + spare > frames_.limit()) return false;
  if (!is_untouched(huge)) return false;
  Slot slot = pool_.take();
  bool is_zero = slot < 0;
  if (is_zero) slot = pool_.grow(spare);
  return slot >= 0 && fill(t, huge, slot, is_zero, HugeQueue::kMain);
}

// A stream of first writes.
bool HugePath::fill_stream(ThreadSlot& t, HugeIndex huge) {
  if (!is_untouched(huge)) return false;
  Slot slot = take_frame(true);
  return slot >= 0 && fill(t, huge, slot, false, frames_.evicted() == 0 ? HugeQueue::kMain : HugeQueue::kNew);
}

bool HugePath::fill(ThreadSlot& t, HugeIndex huge, Slot slot, bool is_zero, HugeQueue::Kind kind) {
  HugeFetch fetch;
  fetch.huge = huge;
  fetch.slot = slot;
  fetch.write = true;
  fetch.hot = kind == HugeQueue::kMain;
  claim(t, huge, &fetch.claimed, &fetch.empty);
  if (!fetch.claimed.is_full() || !fetch.empty.is_full()) {
    unclaim(huge, fetch.claimed, fetch.empty);
    pool_.put(slot);
    return false;
  }
  inject::pause("huge:claimed");
  if (!is_zero) memset(pool_.address_of(slot), 0, kHugeBytes);
  if (kind != HugeQueue::kMain) account_.record_stream();
  t.counters.add(Counter::kHugeFilled);
  t.counters.add(Counter::kZeroFaults, kHugePages);
  move_in(t, fetch);
  return true;
}

bool HugePath::fetch_dense(ThreadSlot& t, HugeIndex huge, bool write) {
  if (!density_.expects_use(huge) || !account_.pays() || !fetch(t, huge, write, HugeQueue::kMain)) return false;
  density_.record_whole(huge);
  account_.record_dense();
  return true;
}

// kind: the queue that it enters at least.
bool HugePath::fetch(ThreadSlot& t, HugeIndex huge, bool write, HugeQueue::Kind kind) {
  if (!pool_.is_hopeful() || !comes_whole(huge)) return false;
  Slot slot = take_frame(true);  // before the lock: no other thread waits while this one waits for a frame
  if (slot < 0) return false;
  ReadQueueLock lock(t.reads);
  HugeFetch* fetch = start(t, huge, write, slot);
  if (!fetch) return false;
  if (kind == HugeQueue::kRecent) account_.record_stream();
  fetch->hot |= kind == HugeQueue::kMain;
  t.counters.add(Counter::kMajorFaults);
  finish(t, t, *fetch);
  return true;
}

// Only if reading it can overlap with the program: the read takes time, or an evictor does it.
void HugePath::start_ahead(ThreadSlot& t, const HugeStreams::Stream& stream, bool write) {
  HugeIndex huge = huge_of(static_cast<PageIndex>(stream.next < 0 ? 0 : stream.next));
  bool exists = stream.next >= 0 && huge < huge_table_.count() && !huge_table_.has(huge, HugeTable::kRefused);
  if (!exists) return;
  if (t.ahead_pause > 0) t.ahead_pause--;
  bool delegates = t.ahead_pause == 0 && evictors_.has_spare_core();
  {
    ReadQueueLock lock(t.reads);
    bool overlaps = delegates || t.reads.channel(store_).proceeds_alone();
    if (!overlaps || !comes_whole(huge)) return;
    Slot slot = take_frame(false);
    if (slot < 0 || !start(t, huge, write, slot)) return;
    account_.record_stream();
  }
  if (delegates) evictors_.request_mapping(t);
}

bool HugePath::fetch_announced(ThreadSlot& t, HugeIndex huge, bool write, bool wait) {
  if (!is_enabled() || huge >= huge_table_.count() || huge_table_.has(huge, HugeTable::kRefused)) return false;
  if (is_untouched(huge)) return write && wants_first_touch(huge) && fill_first_touch(t, huge);
  if (!comes_whole(huge)) return false;
  Slot slot = take_frame(wait);
  if (slot < 0) return false;
  {
    ReadQueueLock lock(t.reads);
    bool immediate = t.reads.channel(store_).mapping().immediate;
    if (!t.reads.free_huge(immediate ? 0 : HugeFetch::kMaxRequests)) drain(t, t);
    if (!start(t, huge, write, slot)) return false;
  }
  if (evictors_.has_spare_core()) evictors_.request_mapping(t);
  return true;
}

// ---- Claims ----

bool HugePath::is_untouched(HugeIndex huge) {
  for (PageIndex page = first_page(huge), end = page + kHugePages; page < end; page++) {
    if (!table_[page].load().is(PageState::kUntouched) || is_excluded(table_[page].load())) return false;
  }
  return true;
}

bool HugePath::is_excluded(PageWord word) {
  return (word.bits() & (PageWord::kSealed | PageWord::kFreed | PageWord::kObjects | PageWord::kObjectPath)) != 0;
}

// Most of its pages are far. Pages that are near are copied, which costs more than to read them.
bool HugePath::comes_whole(HugeIndex huge) {
  constexpr unsigned kMaxNear = kHugePages * 3 / 8, kMinFar = kHugePages / 2;
  unsigned near = 0, far = 0;
  for (PageIndex page = first_page(huge), end = page + kHugePages; page < end; page++) {
    PageWord word = table_[page].load();
    bool usable = word.is(PageState::kFar) || word.is(PageState::kUntouched) || word.is(PageState::kNear);
    if (!usable || is_excluded(word)) return false;
    near += word.is(PageState::kNear);
    far += word.is(PageState::kFar);
  }
  return near <= kMaxNear && far >= kMinFar;
}

// Claims those pages that are kFar or kUntouched.
void HugePath::claim(ThreadSlot& t, HugeIndex huge, HugeBits* claimed, HugeBits* empty) {
  for (unsigned i = 0; i < kHugePages; i++) {
    bool untouched;
    if (!claim_page(t, first_page(huge) + i, &untouched)) continue;
    claimed->set(i);
    if (untouched) empty->set(i);
  }
}

bool HugePath::claim_page(ThreadSlot& t, PageIndex page, bool* untouched) {
  PageWord word = table_[page].load();
  *untouched = word.is(PageState::kUntouched);
  if ((!word.is(PageState::kFar) && !*untouched) || is_excluded(word)) return false;
  PageWord claimed = word.with_state(PageState::kFetching).with_owner(t.index);
  return table_[page].try_change(word, claimed.without(PageWord::kPrefetched | PageWord::kHot));
}

void HugePath::unclaim(HugeIndex huge, const HugeBits& claimed, const HugeBits& empty) {
  for (unsigned i = 0; i < kHugePages; i++) {
    if (!claimed.has(i)) continue;
    PageState before = empty.has(i) ? PageState::kUntouched : PageState::kFar;
    table_[first_page(huge) + i].update([&](PageWord w) { return w.with_state(before).with_owner(0); });
  }
}

// ---- Reads. The read queue is locked, here and below. ----

// A free frame; -1: none is ready. wait: for a while, since evictors make one ready; single pages would wait for them,
// too.
Slot HugePath::take_frame(bool wait) {
  constexpr unsigned kSpins = 500, kSleeps = 10;
  constexpr uint64_t kSleepNs = 100'000;
  pool_.ask();
  Slot slot = pool_.take();
  evictors_.request_frame();
  if (slot >= 0) return slot;
  pool_.ask_more();
  for (unsigned i = 0; wait && slot < 0 && i < kSpins + kSleeps && evictors_.available(); i++) {
    uint32_t seen = frames_.released().value();
    slot = pool_.take();
    if (slot >= 0 || !pool_.wants_frame()) break;
    if (i < kSpins) cpu_relax();
    else frames_.released().wait(seen, kSleepNs);
  }
  return slot;
}

// Claims the huge page and starts to read it into the slot's frame. nullptr: too many reads are in flight, or another
// thread has claimed all of it; the frame is free again.
HugeFetch* HugePath::start(ThreadSlot& t, HugeIndex huge, bool write, Slot slot) {
  bool immediate = t.reads.channel(store_).mapping().immediate;
  unsigned requests = immediate ? 0 : HugeFetch::kMaxRequests;
  HugeFetch* fetch = t.reads.free_huge(requests);
  if (!fetch) {
    pool_.put(slot);
    return nullptr;
  }
  PageWord word = table_[first_page(huge)].load();
  PageWord last = table_[first_page(huge) + kHugePages - 1].load();
  uint64_t age = frames_.age_of(word.epoch());
  *fetch = HugeFetch();
  fetch->huge = huge;
  claim(t, huge, &fetch->claimed, &fetch->empty);
  if (fetch->claimed.count() == 0) {
    pool_.put(slot);
    return nullptr;
  }
  inject::pause("huge:claimed");
  bool presumed = !write && huge_table_.has(huge, HugeTable::kWritten);
  fetch->write = write || presumed;
  fetch->hot = word.is(PageState::kFar) && policy_.is_hot(t.index, first_page(huge), word, age, frames_.limit());
  fetch->sums = presumed || (!write && !is_only_writer()) ? HugeTable::make_sums() : nullptr;
  bool left_whole = word.is(PageState::kFar) && word.epoch() == last.epoch() && last.is(PageState::kFar);
  if (left_whole) huge_queue_.record_return(age);
  if (word.is(PageState::kFar)) t.refault_ages.put(age, fetch->claimed.count());
  t.reads.started(*fetch, slot, requests);
  if (!immediate) submit(t, *fetch);
  t.counters.add(Counter::kReads);
  t.counters.add(Counter::kHugeFetched);
  t.counters.add(Counter::kBytesFetched, kHugeBytes);
  return fetch;
}

void HugePath::submit(ThreadSlot& t, HugeFetch& fetch) {
  constexpr uint32_t kBytes = HugeFetch::kRequestPages * kPageSize;
  transport::Channel& channel = t.reads.channel(store_);
  uint64_t far = PageTable::far_of(first_page(fetch.huge));
  std::byte* near = pool_.address_of(fetch.slot);
  for (unsigned i = 0; i < HugeFetch::kMaxRequests; i++) {
    transport::ByteRange range = {far + i * kBytes, kBytes, near + i * kBytes};
    if (int error = channel.submit_read({&range, 1}, &fetch.tokens[i])) die_of_lost_memory(store_, error);
  }
}

// Reads the next part of the huge page. False: it has not arrived; only without `wait`.
bool HugePath::read_some(ThreadSlot& self, ThreadSlot& owner, HugeFetch& fetch, bool wait) {
  constexpr unsigned kPagesAtOnce = 32;  // of what is copied here: the owner may wait for its queue meanwhile
  transport::Channel& channel = owner.reads.channel(store_);
  transport::Mapping far = channel.mapping();
  unsigned begin = fetch.filled;
  uint64_t start = ticks();
  if (far.immediate) {
    std::byte* to = pool_.address_of(fetch.slot) + begin * kPageSize;
    const std::byte* from = far.base + PageTable::far_of(first_page(fetch.huge) + begin);
    unsigned end = std::min(begin + kPagesAtOnce, kHugePages);
    for (unsigned i = begin; i < end; i++) {  // sums are taken while the page is in the processor's cache
      memcpy(to + (i - begin) * kPageSize, from + (i - begin) * kPageSize, kPageSize);
      record_sums(fetch, i, i + 1);
    }
    fetch.filled = end;
    self.counters.add(Counter::kMapTicks, ticks() - start);
    return true;
  }
  transport::Token& token = fetch.tokens[begin / HugeFetch::kRequestPages];
  int r = wait ? channel.wait(token, kTransportTimeoutNs) : channel.poll(token);
  if (r < 0) die_of_lost_memory(store_, r);
  if (!wait && r == 0) return false;
  token = 0;
  owner.reads.request_arrived();
  self.counters.add(Counter::kFetchTicks, ticks() - start);
  record_sums(fetch, begin, begin + HugeFetch::kRequestPages);
  fetch.filled = begin + HugeFetch::kRequestPages;
  return true;
}

void HugePath::record_sums(HugeFetch& fetch, unsigned begin, unsigned end) {
  if (!fetch.sums) return;
  const std::byte* content = pool_.address_of(fetch.slot);
  for (unsigned i = begin; i < end; i++) fetch.sums[i] = ContentSums::of(content + i * kPageSize);
}

// ---- First writes ----

// A program that writes the pages of a huge page in turn, from its beginning or its end. A single write makes a single
// page writable, which splits the mapping of the huge page.
bool HugePath::upgrades_whole(PageIndex page, PageWord word) {
  if (!word.has(PageWord::kHuge)) return false;
  unsigned at = page % kHugePages;
  if (at == 0 || at == kHugePages - 1) return true;
  return table_[page - 1].load().writable() || table_[page + 1].load().writable();
}

// Owns those pages that can be, as FaultPath::upgrade does with one, and makes each run of them writable by one call.
void HugePath::upgrade(ThreadSlot& t, PageIndex page, bool* read_only) {
  HugeIndex huge = huge_of(page);
  PageIndex first = first_page(huge), end = first + kHugePages;
  constexpr uint64_t kOwn = PageWord::kDirty | PageWord::kUpgrading;
  auto own = [&](PageIndex p) {
    for (PageWord w = table_[p].load(); w.is(PageState::kNear) && w.has(PageWord::kHuge);) {
      if (w.has(PageWord::kUpgrading) || w.writable() || w.is_free()) return false;
      if (table_[p].try_change(w, w.with(kOwn).without(PageWord::kCow | PageWord::kPrefetched))) return true;
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
  t.counters.add(Counter::kHugeUpgraded);
  t.counters.add(Counter::kProtectionFaults);
  huge_table_.set(huge, HugeTable::kWritten);
  t.huge_streams.record_write(huge);
}

// Of pages that are being upgraded. False: the program has made them read-only; they are protected again.
bool HugePath::lift_protection(PageIndex first, size_t bytes) {
  inject::pause("huge:upgrading");
  std::byte* address = table_.address_of(first);
  int error = space_.write_protect(address, bytes, false);
  bool writable = !error && space_.make_own(address, bytes) == 0;
  if (!error && !writable) error = space_.write_protect(address, bytes, true);
  if (error) die("internal error: cannot change the protection of page {} (error {})", first, -error);
  uint64_t cow = writable ? 0 : PageWord::kCow;
  for (PageIndex p = first, end = first + static_cast<PageIndex>(bytes / kPageSize); p < end; p++) {
    PageWord old = table_[p].update([&](PageWord w) { return w.without(PageWord::kUpgrading).with(cow); });
    FARSIDE_CHECK(old.is(PageState::kNear) && old.has(PageWord::kUpgrading));
  }
  return writable;
}

}  // namespace farside::pager
