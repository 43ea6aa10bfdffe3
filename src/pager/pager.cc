#include "pager/pager.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "base/log.h"
#include "fiber/wait.h"

namespace farside::pager {
namespace {

bool cannot_fit(uint64_t bytes, uint64_t space) { return bytes == 0 || bytes > space; }

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }
std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

// Calls visit(address, first, count) for each part of a range, aligned to pages, whose pages have successive numbers.
// In the far space that is all of it. A visit may return whether to continue; false: one did not.
template <typename Visit>
bool for_each_part(const PageTable& table, const std::byte* address, size_t bytes, Visit visit) {
  uint64_t at = number(address), end = at + bytes;
  while (at < end) {
    PageIndex first = table.index_of(at);
    uint64_t part = std::min(end, table.in_space(at) ? end : align_up(at + 1, PageTable::kWindowBytes));
    while (part < end && table.contains(part) && table.index_of(part) == first + (part - at) / kPageSize)
      part = std::min(end, part + PageTable::kWindowBytes);
    uint64_t count = (part - at) / kPageSize;
    if constexpr (std::is_void_v<decltype(visit(pointer(at), first, count))>) visit(pointer(at), first, count);
    else if (!visit(pointer(at), first, count)) return false;
    at = part;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Pager>> Pager::create(const Options& options, remote::RemoteStore* store, Delivery delivery) {
  auto space = FarSpace::reserve(options.space, delivery);
  if (!space.ok()) return space.status();
  std::unique_ptr<Pager> pager(new Pager(options, store, std::move(*space)));
  // The handler thread may act on messages that are outdated, while the program runs.
  if (delivery == Delivery::kMessages) pager->assume_other_writers();
  return pager;
}

Pager::Pager(const Options& options, remote::RemoteStore* store, std::unique_ptr<FarSpace> space)
    : store_(store),
      space_(std::move(space)),
      table_(space_->base(), space_->bytes()),
      policy_(options.policy, table_),
      twins_(options.writeback, table_.pages(), frames_),
      threads_(store, frames_),
      budget_(frames_, options.local, sizeof(PageWord) + twins_.entry_bytes()),
      context_{store,    *space_, table_,    policy_,     frames_,     budget_,  twins_,
               threads_, gate_,   evictors_, huge_table_, huge_queue_, density_, pool_},
      huge_table_(table_.pages()),
      huge_queue_(huge_table_, frames_),
      density_(huge_table_, frames_),
      pool_(*space_, frames_),
      evictors_(context_, options.evictors),
      huge_(context_, options.huge),
      fetches_(context_, huge_),
      faults_(context_, fetches_, huge_, options.prefetch),
      hints_(context_, fetches_, faults_, huge_),
      ranges_(context_, faults_),
      addresses_(reinterpret_cast<uint64_t>(space_->base()),
                 reinterpret_cast<uint64_t>(space_->base()) + space_->bytes()) {
  evictors_.set_background_work([](void* fetches) { return static_cast<FetchPath*>(fetches)->map_ahead(); }, &fetches_);
}

Pager::~Pager() {
  evictors_.stop();
  threads_.close_channels();
}

void Pager::start_threads() {
  huge_.open();
  evictors_.start();
}

void Pager::advise(std::byte* address, size_t bytes, int advice) {
  for_each_part(table_, address, bytes,
                [&](std::byte*, PageIndex first, uint64_t count) { huge_.advise(first, count, advice); });
}

void Pager::fetch_range(std::byte* address, size_t bytes, bool write, bool wait) {
  SignalsBlocked blocked;
  for_each_part(table_, address, bytes,
                [&](std::byte*, PageIndex first, uint64_t count) { hints_.fetch_range(first, count, write, wait); });
}

std::byte* Pager::reserve(size_t bytes, size_t alignment) {
  SignalsBlocked blocked;
  if (cannot_fit(bytes, space_->bytes())) return nullptr;
  LockGuard guard(address_mutex_);
  uint64_t taken = addresses_.take(align_up(bytes, kPageSize), alignment < kPageSize ? kPageSize : alignment);
  FARSIDE_DCHECK(addresses_.is_valid());
  return reinterpret_cast<std::byte*>(taken);
}

bool Pager::reserve_at(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  auto begin = reinterpret_cast<uint64_t>(address);
  if (!contains(begin) || !is_aligned(begin, kPageSize) || cannot_fit(bytes, space_->bytes())) return false;
  LockGuard guard(address_mutex_);
  return addresses_.take_exactly(begin, begin + align_up(bytes, kPageSize));
}

Status Pager::commit(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  std::byte* done = address;
  Status charged;
  for_each_part(table_, address, bytes, [&](std::byte* at, PageIndex first, uint64_t count) {
    charged = charge(at, count * kPageSize);
    if (!charged.ok()) return false;
    make_accessible(at, count * kPageSize);  // commit() fills freed pages with zeros
    huge_.forget_advice(first, count);
    ranges_.commit(first, count);
    make_accessible(at, count * kPageSize);  // guard_page() may have run before a page was committed
    done = at + count * kPageSize;
    return true;
  });
  if (!charged.ok() && done > address) decommit(address, static_cast<size_t>(done - address));
  return charged;
}

void Pager::make_accessible(std::byte* address, size_t bytes) {
  LockGuard guard(protection_mutex_);
  if (protections_changed_.load()) os::mprotect(address, bytes, PROT_READ | PROT_WRITE);
  space_->include_in_core(address + bytes);
}

// Protection first: once the pages are unmapped, another thread may commit them again.
template <typename Drop>
void Pager::decommit_range(std::byte* address, size_t bytes, Drop drop) {
  FARSIDE_DCHECK(is_aligned(reinterpret_cast<uint64_t>(address), kPageSize) && is_aligned(bytes, kPageSize));
  SignalsBlocked blocked;
  if (protections_changed_.load()) os::mprotect(address, bytes, PROT_READ | PROT_WRITE);
  for_each_part(table_, address, bytes, [&](std::byte* at, PageIndex first, uint64_t count) {
    drop(first, count);
    uncharge(at, count * kPageSize);
  });
}

void Pager::decommit(std::byte* address, size_t bytes) {
  decommit_range(address, bytes,
                 [&](PageIndex first, uint64_t count) { ranges_.drop(first, count, PageState::kUnmapped); });
}

void Pager::decommit_lazily(std::byte* address, size_t bytes) {
  decommit_range(address, bytes, [&](PageIndex first, uint64_t count) { ranges_.free(first, count); });
}

void Pager::release(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  auto begin = reinterpret_cast<uint64_t>(address);
  LockGuard guard(address_mutex_);
  addresses_.give(begin, begin + align_up(bytes, kPageSize));
  FARSIDE_DCHECK(addresses_.is_valid());
}

void Pager::discard(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  for_each_part(table_, address, bytes, [&](std::byte*, PageIndex first, uint64_t count) {
    ranges_.drop(first, count, PageState::kUntouched);
  });
}

Status Pager::adopt(std::byte* address, size_t bytes, std::byte* around, std::byte* around_end) {
  return adopt_range(address, bytes, around, around_end, true);
}

Status Pager::adopt_unmapped(std::byte* address, size_t bytes) {
  return adopt_range(address, bytes, nullptr, nullptr, false);
}

Status Pager::adopt_range(std::byte* address, size_t bytes, std::byte* around, std::byte* around_end, bool replace) {
  SignalsBlocked blocked;
  uint64_t begin = number(address), end = begin + bytes;
  LockGuard guard(address_mutex_);
  if (!in_space(begin)) {
    bool wide =
        around && number(around) <= begin && end <= number(around_end) && lend(number(around), number(around_end)).ok();
    Status lent = wide ? Status() : lend(begin, end);
    if (!lent.ok()) return lent;
  }
  int error = space_->adopt(address, bytes, replace, inherit_in_fork_);
  if (error) return Status::error(-error, "cannot map far memory at {:#x} (error {})", begin, -error);
  for_each_part(table_, address, bytes,
                [&](std::byte*, PageIndex first, uint64_t count) { ranges_.set_foreign(first, count, false); });
  return {};
}

void Pager::abandon(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  LockGuard guard(protection_mutex_);  // guard_page() must not protect what is mapped there afterwards
  for_each_part(table_, address, bytes,
                [&](std::byte*, PageIndex first, uint64_t count) { ranges_.set_foreign(first, count, true); });
}

// Lends page numbers for the windows of [begin, end), which lies outside of the far space, that have none.
Status Pager::lend(uint64_t begin, uint64_t end) {
  constexpr uint64_t kBytes = PageTable::kWindowBytes;
  begin = align_down(begin, kBytes);
  end = align_up(end, kBytes);
  for (uint64_t at = begin; at < end;) {
    uint64_t run = at;
    while (run < end && !table_.contains(run)) run += kBytes;
    if (run > at && !lend_run(at, run))
      return Status::error(ENOSPC, "no page numbers are left for {} bytes at {:#x}; raise --tune space", run - at, at);
    at = run + kBytes;
  }
  return {};
}

bool Pager::lend_run(uint64_t begin, uint64_t end) {
  if (in_space(end - 1) || end > uint64_t{1} << 47) return false;
  // The other half is for the far space itself: what is lent does not come back.
  if (lent_bytes_ + (end - begin) > space_->bytes() / 2) return false;
  uint64_t taken = addresses_.take(end - begin, PageTable::kWindowBytes);
  if (taken == 0) return false;
  table_.lend(table_.index_of(taken), begin, (end - begin) / PageTable::kWindowBytes);
  lent_bytes_ += end - begin;
  return true;
}

Status Pager::protect(std::byte* address, size_t bytes, int protection) {
  SignalsBlocked blocked;
  if (protection & PROT_WRITE) protection |= PROT_READ;  // processors cannot map a page for writing only
  bool readable = (protection & PROT_READ) != 0;
  protections_changed_.store(true);
  // A page that may not be read cannot be held for eviction, so it must not be near. The kernel refuses accesses to it
  // before it reports a fault, so it stays away; accesses in between find it sealed.
  int error = 0;
  for_each_part(table_, address, bytes, [&](std::byte* at, PageIndex first, uint64_t count) {
    if (!readable) ranges_.seal(first, count);
    error = os::mprotect(at, count * kPageSize, protection);
    if (error != 0 || readable) ranges_.unseal(first, count);
    return error == 0;
  });
  return error ? Status::error(-error, "mprotect failed") : Status();
}

void Pager::guard_page(uint64_t address) {
  LockGuard guard(protection_mutex_);
  // The page may have been committed meanwhile; or it is sealed, and the kernel refuses the access by itself.
  PageWord now = word(address);
  if (!now.is(PageState::kUnmapped) || now.is_foreign()) return;
  protections_changed_.store(true);
  os::mprotect(reinterpret_cast<void*>(align_down(address, kPageSize)), kPageSize, PROT_NONE);
}

bool Pager::is_committed(const std::byte* address, size_t bytes) {
  if (!contains(number(address)) || contained_bytes(number(address), bytes) < bytes) return false;
  return for_each_part(table_, address, bytes,
                       [&](std::byte*, PageIndex first, uint64_t count) { return ranges_.all_mapped(first, count); });
}

Status Pager::add_region(std::byte* address, size_t bytes, PolicyKind policy) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  if (!in_space(number(address))) return Status::error(EINVAL, "regions are in the far space only");
  return policy_.add(table_.index_of(number(address)), bytes / kPageSize, policy);
}

void Pager::remove_region(std::byte* address) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  policy_.remove(table_.index_of(reinterpret_cast<uint64_t>(address)));
}

// How many bytes from a contained address on have page words.
uint64_t Pager::contained_bytes(uint64_t address, uint64_t bytes) const {
  if (in_space(address)) return std::min(bytes, number(base()) + space_->bytes() - address);
  uint64_t reached = align_up(address + 1, PageTable::kWindowBytes) - address;
  while (reached < bytes && table_.contains(address + reached)) reached += PageTable::kWindowBytes;
  return std::min(bytes, reached);
}

size_t Pager::pin(const void* address, size_t bytes, bool write) {
  if (bytes == 0) return 0;
  uint64_t begin = align_down(number(address), kPageSize), pinned = begin;
  uint64_t end = number(address) + contained_bytes(number(address), bytes);
  for_each_part(table_, pointer(begin), align_up(end, kPageSize) - begin,
                [&](std::byte* at, PageIndex first, uint64_t count) {
                  uint64_t part = ranges_.pin(first, count, write);
                  pinned = number(at) + part * kPageSize;
                  return part == count;
                });
  return pinned == begin ? 0 : std::min(pinned, end) - number(address);
}

void Pager::unpin(const void* address, size_t bytes) {
  if (bytes == 0) return;
  uint64_t begin = align_down(number(address), kPageSize), end = align_up(number(address) + bytes, kPageSize);
  for_each_part(table_, pointer(begin), end - begin,
                [&](std::byte*, PageIndex first, uint64_t count) { ranges_.unpin(first, count); });
}

void Pager::set_local(SizeOrShare local) {
  budget_.set(local);
  evictors_.wake();
}

unsigned Pager::hint(const Hint& hint) {
  if (hints_.is_satisfied(hint)) return 0;
  bool may_suspend = fibers::in_fiber();
  SignalsBlocked blocked;
  return hints_.hint(hint, may_suspend);
}

void Pager::read_subpages(std::span<SubpageRead> reads) {
  bool may_suspend = fibers::in_fiber();
  SignalsBlocked blocked;
  fetches_.read_subpages(reads, may_suspend);
}

void Pager::mark_objects(std::byte* address, size_t bytes) {
  PageIndex first = table_.index_of(reinterpret_cast<uint64_t>(address));
  for (uint64_t i = 0; i < bytes / kPageSize; i++) {
    table_[static_cast<PageIndex>(first + i)].update(
        [](PageWord w) { return w.with(PageWord::kObjects).without(PageWord::kObjectPath); });
  }
}

void Pager::detach_thread() {
  SignalsBlocked blocked;
  if (ThreadSlot* t = threads_.attached()) {
    InGate inside(gate_, *t);
    fetches_.drain(*t, *t);
  }
  threads_.detach();
}

// The server must be able to store everything. Committed memory is therefore reserved on the server beforehand, so that
// a full server makes malloc return ENOMEM instead of ending the program later.
Status Pager::charge(const std::byte* address, size_t bytes) {
  LockGuard guard(charge_mutex_);
  if (charged_ + bytes > reserved_) {
    uint64_t missing = align_up(charged_ + bytes - reserved_, remote::kSlabBytes);
    uint64_t ahead = missing + reserve_ahead();
    Status grown = store_->grow(ahead);
    if (grown.ok()) missing = ahead;
    else grown = store_->grow(missing);
    if (!grown.ok()) return grown;
    reserved_ += missing;
  }
  Status claimed = store_->claim(PageTable::far_of(table_.index_of(reinterpret_cast<uint64_t>(address))), bytes);
  if (claimed.ok()) charged_ += bytes;
  FARSIDE_CHECK(charged_ <= reserved_);
  return claimed;
}

// A quarter of what is used: large programs seldom wait for the server, and small ones do not keep others out.
uint64_t Pager::reserve_ahead() const {
  return align_down(std::min(charged_ / 4, kMaxReserveAhead), remote::kSlabBytes);
}

void Pager::uncharge(const std::byte* address, size_t bytes) {
  LockGuard guard(charge_mutex_);
  FARSIDE_CHECK(charged_ >= bytes && reserved_ >= charged_);
  store_->unclaim(PageTable::far_of(table_.index_of(reinterpret_cast<uint64_t>(address))), bytes);
  charged_ -= bytes;
  uint64_t spare = reserved_ - charged_, kept = reserve_ahead() + remote::kSlabBytes;
  if (spare < 2 * kept) return;
  uint64_t back = align_down(spare - kept, remote::kSlabBytes);
  store_->shrink(back);
  reserved_ -= back;
  FARSIDE_CHECK(reserved_ >= charged_);
}

Pager::CallShare Pager::share_of(std::span<const CallRange> ranges) {
  constexpr uint64_t kMaxSeen = 64;
  CallShare share;
  for (const CallRange& range : ranges) {
    PageIndex first = table_.index_of(number(range.address));
    uint64_t count = range.bytes / kPageSize, seen = std::min(count, kMaxSeen), far = 0, dirty = 0;
    for (uint64_t i = 0; i < seen; i++) {
      PageWord word = table_[first + static_cast<PageIndex>(i * count / seen)].load();
      far += word.is(PageState::kFar);
      dirty += word.is(PageState::kNear) && word.has(PageWord::kDirty);
    }
    share.pages += count;
    share.far += far * count / seen;
    share.dirty += dirty * count / seen;
  }
  return share;
}

int Pager::begin_call(std::span<const CallRange> ranges) {
  bool all_far =
      std::all_of(ranges.begin(), ranges.end(), [&](const CallRange& r) { return in_space(number(r.address)); });
  if (!all_far) return -EFAULT;
  if (is_written(ranges)) written_call_mutex_.lock();
  RangeOps::WriteBack read(ranges_);
  for (size_t i = 0; i < ranges.size(); i++) {
    PageIndex first = table_.index_of(number(ranges[i].address));
    uint64_t count = ranges[i].bytes / kPageSize;
    if (ranges[i].written) read.finish();
    if (ranges[i].written ? take(first, count) : read.add(first, count)) continue;
    take_back(ranges.first(i));
    if (is_written(ranges)) written_call_mutex_.unlock();
    return -EFAULT;
  }
  return 0;
}

// All of the pages or none.
bool Pager::take(PageIndex first, uint64_t count) {
  uint64_t taken = ranges_.take(first, count);
  if (taken == count) return true;
  ranges_.give_back(first, taken);
  return false;
}

void Pager::end_call(std::span<const CallRange> ranges) {
  take_back(ranges);
  if (is_written(ranges)) written_call_mutex_.unlock();
}

void Pager::take_back(std::span<const CallRange> ranges) {
  for (const CallRange& range : ranges) {
    if (range.written) ranges_.give_back(table_.index_of(number(range.address)), range.bytes / kPageSize);
  }
}

bool Pager::is_written(std::span<const CallRange> ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [](const CallRange& range) { return range.written; });
}

uint64_t Pager::used_pages() {
  uint64_t base = reinterpret_cast<uint64_t>(space_->base());
  return (addresses_.used_end(base + space_->bytes()) - base) / kPageSize;
}

// Order: the gate first, since threads inside it may need evictors; then reads that no thread waits for; then the
// evictors; then the locks of ordinary code, so that the child inherits complete structures.
void Pager::prepare_fork() {
  ThreadSlot& self = threads_.current();
  written_call_mutex_.lock();
  gate_.shut(threads_, self);
  threads_.for_each([&](ThreadSlot& t) { fetches_.drain(self, t); });
  evictors_.pause();
  address_mutex_.lock();
  charge_mutex_.lock();
  protection_mutex_.lock();
  // One mapping for all that the child protects: kernels before 6.4 protect no range of two.
  space_->include_in_core(space_->base() + used_pages() * kPageSize);
  threads_.before_fork();
  Result<remote::ForkTicket> ticket = store_->prepare_fork();
  ticket_ = ticket.ok() ? *ticket : remote::ForkTicket();
  if (!ticket.ok())
    log(LogLevel::kWarning, "{}; a forked child that touches far memory will end", ticket.status().text());
  near_before_fork();
}

void Pager::unlock_after_fork() {
  near_after_fork();
  threads_.after_fork();
  protection_mutex_.unlock();
  charge_mutex_.unlock();
  address_mutex_.unlock();
  written_call_mutex_.unlock();
}

void Pager::fork_in_parent(bool forked) {
  if (forked) protect_shared_frames();
  unlock_after_fork();
  store_->forked_in_parent(ticket_);
  evictors_.resume();
  gate_.open();
}

// After a fork the frames of near pages are shared with the child, copy-on-write. Their next write must fault, so that
// the kernel's copy is never made while an evictor holds the old frame: all near pages are write-protected and get the
// cow bit. Dirty pages that are pinned for system calls must stay writable for the kernel: they are copied at once.
void Pager::protect_shared_frames() {
  auto protect = [&](PageIndex first, uint64_t count) {
    if (count == 0) return;
    int error = space_->write_protect(table_.address_of(first), count * kPageSize, true);
    if (error) die("internal error: cannot write-protect after fork (error {})", -error);
  };
  for_each_far_stretch([&](PageIndex first, uint64_t count) {
    PageIndex run = first, end = first + static_cast<PageIndex>(count);
    for (PageIndex page = first; page < end; page++) {
      PageWord w = table_[page].load();
      if (!w.is(PageState::kNear)) continue;
      // The kernel does not write a pinned page that the program may not write.
      bool stays_writable = w.pins() > 0 && w.writable() && space_->make_own(table_.address_of(page)) == 0;
      if (!stays_writable) {
        table_[page].set(PageWord::kCow);
        continue;
      }
      protect(run, page - run);
      run = page + 1;
    }
    protect(run, end - run);
  });
}

// Calls visit(first, count) for each run of pages that are not foreign and whose addresses follow each other, as far as
// the space was ever used.
template <typename Visit>
void Pager::for_each_far_stretch(Visit visit) {
  auto pages = static_cast<PageIndex>(used_pages());
  for (PageIndex first = 0; first < pages;) {
    PageIndex end = first;
    while (end < pages && !table_[end].load().is_foreign() && (end == first || table_.is_followed(end - 1))) end++;
    if (end > first) visit(first, end - first);
    else end++;
    first = end;
  }
}

void Pager::inherit_in_fork(bool inherit) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  inherit_in_fork_ = inherit;
  int advice = inherit ? MADV_DOFORK : MADV_DONTFORK;
  for_each_far_stretch(
      [&](PageIndex first, uint64_t count) { os::madvise(table_.address_of(first), count * kPageSize, advice); });
  uint64_t used = used_pages() * kPageSize;
  if (used < space_->bytes()) os::madvise(base() + used, space_->bytes() - used, advice);
}

// The kernel dropped all registrations in the child.
int Pager::watch_in_child() {
  int error = space_->open_in_child();
  for_each_far_stretch([&](PageIndex first, uint64_t count) {
    if (!error) error = space_->watch(table_.address_of(first), count * kPageSize);
  });
  uint64_t used = used_pages() * kPageSize;
  if (!error && used < space_->bytes()) error = space_->watch(base() + used, space_->bytes() - used);
  return error;
}

void Pager::fork_in_child() {
  unlock_after_fork();
  gate_.reset_in_child();
  frames_.reset_in_child();
  pool_.reset_in_child();
  evictors_.reset_in_child();
  transport::Waiting::reset_in_child();
  Status adopted = store_->adopt_in_child(ticket_);
  if (!adopted.ok() && ticket_.valid()) log(LogLevel::kWarning, "{}", adopted.text());
  snapshot_failed_ = !adopted.ok();
  threads_.reset_in_child();
  int error = watch_in_child();
  if (error)
    die("a forked child cannot register its far memory with userfaultfd (error {}); it ends, since it would read zeros",
        -error);
  clear_pins();
  protect_shared_frames();
  gate_.open();
}

void Pager::clear_pins() {
  uint64_t pages = used_pages();
  for (uint64_t i = 0; i < pages; i++) {
    PageTable::Entry word = table_[static_cast<PageIndex>(i)];
    if (word.load().pins() != 0) word.clear(PageWord::kPinMask);
  }
}

void Pager::start_threads_in_child() {
  if (snapshot_failed_) return;
  huge_.open();
  evictors_.start();
}

Stats Pager::stats() {
  Stats s;
  uint64_t spare = 0;
  threads_.for_each([&](ThreadSlot& t) {
    for (size_t i = 0; i < kCounters; i++) s.counters[i] += t.counters.get(static_cast<Counter>(i));
    s.busiest_thread_fetches = std::max(s.busiest_thread_fetches, t.counters.get(Counter::kMajorFaults));
    s.fault_times.add(t.fault_times);
    s.frame_waits.add(t.frame_waits);
    spare += t.spare_frames.count();
  });
  evictors_.add_counters(s);
  spare += pool_.free() * kHugePages;
  s.near_pages = frames_.used() - std::min(spare, frames_.used());
  s.near_peak_pages = frames_.peak();
  s.populated_pages = budget_.populated();
  s.populated_peak_pages = budget_.populated_peak();
  s.limit_pages = frames_.target();
  s.metadata_bytes = budget_.metadata_bytes();
  return s;
}

void Pager::check_valid() {
  evictors_.pause();  // a page evicted between the walk and the count would look like a lost frame
  FARSIDE_CHECK(addresses_.is_valid());
  uint64_t pages = used_pages(), near = 0;
  for (uint64_t i = 0; i < pages; i++) {
    PageWord w = table_[static_cast<PageIndex>(i)].load();
    if (!w.is_valid()) die("internal error: page {} has the impossible word {:#x}", i, w.bits());
    near += w.is(PageState::kNear) || w.is(PageState::kFetching);
  }
  if (near > frames_.used())
    die("internal error: {} pages are near but only {} frames are counted", near, frames_.used());
  evictors_.resume();
}

}  // namespace farside::pager
