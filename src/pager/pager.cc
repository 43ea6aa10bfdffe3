#include "pager/pager.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "fiber/wait.h"

namespace farside::pager {
namespace {

bool cannot_fit(uint64_t bytes, uint64_t space) { return bytes == 0 || bytes > space; }

}  // namespace

Result<std::unique_ptr<Pager>> Pager::create(const Options& options, remote::RemoteStore* store, Delivery delivery) {
  auto space = FarSpace::reserve(options.space, delivery);
  if (!space.ok()) return space.status();
  return std::unique_ptr<Pager>(new Pager(options, store, std::move(*space)));
}

Pager::Pager(const Options& options, remote::RemoteStore* store, std::unique_ptr<FarSpace> space)
    : store_(store),
      space_(std::move(space)),
      table_(space_->base(), space_->bytes()),
      policy_(options.policy, table_),
      twins_(options.writeback, table_.pages(), frames_),
      threads_(store, frames_),
      budget_(frames_, options.local, sizeof(PageWord) + twins_.entry_bytes()),
      context_{store, *space_, table_, policy_, frames_, budget_, twins_, threads_, gate_, evictors_},
      evictors_(context_, options.evictors),
      fetches_(context_),
      faults_(context_, fetches_, options.prefetch),
      hints_(context_, fetches_, faults_),
      ranges_(context_, faults_),
      addresses_(reinterpret_cast<uint64_t>(space_->base()),
                 reinterpret_cast<uint64_t>(space_->base()) + space_->bytes()) {
  evictors_.set_background_work([](void* fetches) { return static_cast<FetchPath*>(fetches)->map_ahead(); }, &fetches_);
}

Pager::~Pager() {
  evictors_.stop();
  threads_.close_channels();
}

void Pager::start_threads() { evictors_.start(); }

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
  Status charged = charge(address, bytes);
  if (!charged.ok()) return charged;
  LockGuard guard(protection_mutex_);
  if (protections_changed_.load()) os::mprotect(address, bytes, PROT_READ | PROT_WRITE);
  ranges_.commit(table_.index_of(reinterpret_cast<uint64_t>(address)), bytes / kPageSize);
  return {};
}

void Pager::decommit(std::byte* address, size_t bytes) {
  FARSIDE_DCHECK(is_aligned(reinterpret_cast<uint64_t>(address), kPageSize) && is_aligned(bytes, kPageSize));
  SignalsBlocked blocked;
  // Protection first: once the pages are unmapped, another thread may commit them again.
  if (protections_changed_.load()) os::mprotect(address, bytes, PROT_READ | PROT_WRITE);
  ranges_.drop(table_.index_of(reinterpret_cast<uint64_t>(address)), bytes / kPageSize, PageState::kUnmapped);
  uncharge(address, bytes);
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
  ranges_.drop(table_.index_of(reinterpret_cast<uint64_t>(address)), bytes / kPageSize, PageState::kUntouched);
}

Status Pager::protect(std::byte* address, size_t bytes, int protection) {
  SignalsBlocked blocked;
  PageIndex first = table_.index_of(reinterpret_cast<uint64_t>(address));
  if (protection & PROT_WRITE) protection |= PROT_READ;  // processors cannot map a page for writing only
  bool readable = (protection & PROT_READ) != 0;
  protections_changed_.store(true);
  // A page that may not be read cannot be held for eviction, so it must not be near. The kernel refuses accesses to it
  // before it reports a fault, so it stays away; accesses in between find it sealed.
  if (!readable) ranges_.seal(first, bytes / kPageSize);
  int error = os::mprotect(address, bytes, protection);
  if (error != 0 || readable) ranges_.unseal(first, bytes / kPageSize);
  return error ? Status::error(-error, "mprotect failed") : Status();
}

void Pager::guard_page(uint64_t address) {
  LockGuard guard(protection_mutex_);
  // The page may have been committed meanwhile; or it is sealed, and the kernel refuses the access by itself.
  if (!table_[table_.index_of(address)].load().is(PageState::kUnmapped)) return;
  protections_changed_.store(true);
  os::mprotect(reinterpret_cast<void*>(align_down(address, kPageSize)), kPageSize, PROT_NONE);
}

bool Pager::is_committed(const std::byte* address, size_t bytes) {
  return ranges_.all_mapped(table_.index_of(reinterpret_cast<uint64_t>(address)), bytes / kPageSize);
}

Status Pager::add_region(std::byte* address, size_t bytes, PolicyKind policy) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  return policy_.add(table_.index_of(reinterpret_cast<uint64_t>(address)), bytes / kPageSize, policy);
}

void Pager::remove_region(std::byte* address) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  policy_.remove(table_.index_of(reinterpret_cast<uint64_t>(address)));
}

namespace {
// The first page and the number of pages that [address, address + bytes) touches.
struct PageSpan {
  PageSpan(const PageTable& table, const void* address, size_t bytes) {
    auto begin = reinterpret_cast<uint64_t>(address);
    first = table.index_of(begin);
    uint64_t last = bytes == 0 ? begin : begin + bytes - 1;
    count = bytes == 0 ? 0 : table.index_of(last) - first + 1u;
  }
  PageIndex first;
  uint64_t count;
};
}  // namespace

size_t Pager::pin(const void* address, size_t bytes, bool write) {
  PageSpan span(table_, address, bytes);
  uint64_t pinned = ranges_.pin(span.first, span.count, write);
  if (pinned == span.count) return bytes;
  size_t offset = reinterpret_cast<uint64_t>(address) % kPageSize;
  return pinned == 0 ? 0 : pinned * kPageSize - offset;
}

void Pager::unpin(const void* address, size_t bytes) {
  PageSpan span(table_, address, bytes);
  ranges_.unpin(span.first, span.count);
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
    uint64_t ahead = missing + kReserveAhead;
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

void Pager::uncharge(const std::byte* address, size_t bytes) {
  LockGuard guard(charge_mutex_);
  FARSIDE_CHECK(charged_ >= bytes && reserved_ >= charged_);
  store_->unclaim(PageTable::far_of(table_.index_of(reinterpret_cast<uint64_t>(address))), bytes);
  charged_ -= bytes;
  uint64_t spare = reserved_ - charged_;
  if (spare < 4 * kReserveAhead) return;
  uint64_t back = align_down(spare - 2 * kReserveAhead, remote::kSlabBytes);
  store_->shrink(back);
  reserved_ -= back;
  FARSIDE_CHECK(reserved_ >= charged_);
}

uint64_t Pager::used_pages() {
  uint64_t base = reinterpret_cast<uint64_t>(space_->base());
  return (addresses_.used_end(base + space_->bytes()) - base) / kPageSize;
}

// Order: the gate first, since threads inside it may need evictors; then reads that no thread waits for; then the
// evictors; then the locks of ordinary code, so that the child inherits complete structures.
void Pager::prepare_fork() {
  ThreadSlot& self = threads_.current();
  gate_.shut(threads_, self);
  threads_.for_each([&](ThreadSlot& t) { fetches_.drain(self, t); });
  evictors_.pause();
  address_mutex_.lock();
  charge_mutex_.lock();
  protection_mutex_.lock();
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
  uint64_t pages = used_pages(), run_begin = 0;
  auto protect_run = [&](uint64_t end) {
    if (end <= run_begin) return;
    int error = space_->write_protect(table_.address_of(static_cast<PageIndex>(run_begin)),
                                      (end - run_begin) * kPageSize, true);
    if (error) die("internal error: cannot write-protect after fork (error {})", -error);
  };
  for (uint64_t i = 0; i < pages; i++) {
    auto page = static_cast<PageIndex>(i);
    PageWord w = table_[page].load();
    if (!w.is(PageState::kNear)) continue;
    // The kernel does not write a pinned page that the program may not write.
    bool stays_writable = w.pins() > 0 && w.writable() && space_->make_own(table_.address_of(page)) == 0;
    if (!stays_writable) {
      table_[page].set(PageWord::kCow);
      continue;
    }
    protect_run(i);
    run_begin = i + 1;
  }
  protect_run(pages);
}

void Pager::fork_in_child() {
  unlock_after_fork();
  gate_.reset_in_child();
  frames_.reset_in_child();
  evictors_.reset_in_child();
  Status adopted = store_->adopt_in_child(ticket_);
  if (!adopted.ok() && ticket_.valid()) log(LogLevel::kWarning, "{}", adopted.text());
  snapshot_failed_ = !adopted.ok();
  threads_.reset_in_child();
  int error = space_->adopt_in_child();
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
    AtomicPageWord& word = table_[static_cast<PageIndex>(i)];
    if (word.load().pins() != 0) word.clear(PageWord::kPinMask);
  }
}

void Pager::start_threads_in_child() {
  if (!snapshot_failed_) evictors_.start();
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
