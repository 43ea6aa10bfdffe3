#include "pager/address_space.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/log.h"
#include "pager/fault/huge_path.h"

namespace farside::pager {
namespace {

bool cannot_fit(uint64_t bytes, uint64_t space) { return bytes == 0 || bytes > space; }

}  // namespace

AddressSpace::AddressSpace(FarSpace& space, PageTable& table, PolicySet& policies, remote::RemoteStore* store,
                           RangeOps& ranges, HugePath& huge, EvictorGroup& evictors)
    : space_(space),
      table_(table),
      policies_(policies),
      ranges_(ranges),
      huge_(huge),
      evictors_(evictors),
      charge_(store),
      addresses_(begin(), begin() + space.bytes()) {}

std::byte* AddressSpace::reserve(size_t bytes, size_t alignment) {
  SignalsBlocked blocked;
  if (cannot_fit(bytes, space_.bytes())) return nullptr;
  LockGuard guard(address_mutex_);
  uint64_t taken = addresses_.take(align_up(bytes, kPageSize), alignment < kPageSize ? kPageSize : alignment);
  FARSIDE_DCHECK(addresses_.is_valid());
  return pointer(taken);
}

bool AddressSpace::reserve_at(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  auto begin = number(address);
  if (!table_.contains(begin) || !is_aligned(begin, kPageSize) || cannot_fit(bytes, space_.bytes())) return false;
  LockGuard guard(address_mutex_);
  return addresses_.take_exactly(begin, begin + align_up(bytes, kPageSize));
}

Status AddressSpace::commit(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  std::byte* done = address;
  Status charged;
  table_.for_each_part(address, bytes, [&](std::byte* at, PageIndex first, uint64_t count) {
    bool is_large = evictors_.is_deferred() && charge_.asks_server(count * kPageSize);
    if (is_large) evictors_.start_if_deferred();  // the process is none of the small ones
    charged = charge_.charge(PageTable::far_of(first), count * kPageSize);
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

void AddressSpace::make_accessible(std::byte* address, size_t bytes) {
  LockGuard guard(protection_mutex_);
  if (protections_changed_.load()) os::mprotect(address, bytes, PROT_READ | PROT_WRITE);
  space_.include_in_core(address + bytes);
}

// Protection first: once the pages are unmapped, another thread may commit them again.
template <typename Drop>
void AddressSpace::decommit_range(std::byte* address, size_t bytes, Drop drop) {
  FARSIDE_DCHECK(is_aligned(number(address), kPageSize) && is_aligned(bytes, kPageSize));
  SignalsBlocked blocked;
  if (protections_changed_.load()) os::mprotect(address, bytes, PROT_READ | PROT_WRITE);
  table_.for_each_part(address, bytes, [&](std::byte*, PageIndex first, uint64_t count) {
    drop(first, count);
    charge_.uncharge(PageTable::far_of(first), count * kPageSize);
  });
}

void AddressSpace::decommit(std::byte* address, size_t bytes) {
  decommit_range(address, bytes,
                 [&](PageIndex first, uint64_t count) { ranges_.drop(first, count, PageState::kUnmapped); });
}

void AddressSpace::decommit_lazily(std::byte* address, size_t bytes) {
  decommit_range(address, bytes, [&](PageIndex first, uint64_t count) { ranges_.free(first, count); });
}

void AddressSpace::release(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  auto begin = number(address);
  LockGuard guard(address_mutex_);
  addresses_.give(begin, begin + align_up(bytes, kPageSize));
  FARSIDE_DCHECK(addresses_.is_valid());
}

void AddressSpace::discard(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  table_.for_each_part(address, bytes, [&](std::byte*, PageIndex first, uint64_t count) {
    ranges_.drop(first, count, PageState::kUntouched);
  });
}

Status AddressSpace::adopt(std::byte* address, size_t bytes, std::byte* around, std::byte* around_end) {
  return adopt_range(address, bytes, around, around_end, true);
}

Status AddressSpace::adopt_unmapped(std::byte* address, size_t bytes) {
  return adopt_range(address, bytes, nullptr, nullptr, false);
}

Status AddressSpace::adopt_range(std::byte* address, size_t bytes, std::byte* around, std::byte* around_end,
                                 bool replace) {
  SignalsBlocked blocked;
  uint64_t begin = number(address), end = begin + bytes;
  LockGuard guard(address_mutex_);
  if (!table_.in_space(begin)) {
    bool wide =
        around && number(around) <= begin && end <= number(around_end) && lend(number(around), number(around_end)).ok();
    Status lent = wide ? Status() : lend(begin, end);
    if (!lent.ok()) return lent;
  }
  int error = space_.adopt(address, bytes, replace, inherit_in_fork_);
  if (error) return Status::error(-error, "cannot map far memory at {:#x} (error {})", begin, -error);
  table_.for_each_part(address, bytes,
                       [&](std::byte*, PageIndex first, uint64_t count) { ranges_.set_foreign(first, count, false); });
  return {};
}

void AddressSpace::abandon(std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  LockGuard guard(protection_mutex_);  // guard_page() must not protect what is mapped there afterwards
  table_.for_each_part(address, bytes,
                       [&](std::byte*, PageIndex first, uint64_t count) { ranges_.set_foreign(first, count, true); });
}

// Lends page numbers for the windows of [begin, end), which lies outside of the far space, that have none.
Status AddressSpace::lend(uint64_t begin, uint64_t end) {
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

bool AddressSpace::lend_run(uint64_t begin, uint64_t end) {
  if (table_.in_space(end - 1) || end > uint64_t{1} << 47) return false;
  // The other half is for the far space itself: what is lent does not come back.
  if (lent_bytes_ + (end - begin) > space_.bytes() / 2) return false;
  uint64_t taken = addresses_.take(end - begin, PageTable::kWindowBytes);
  if (taken == 0) return false;
  table_.lend(table_.index_of(taken), begin, (end - begin) / PageTable::kWindowBytes);
  lent_bytes_ += end - begin;
  return true;
}

Status AddressSpace::protect(std::byte* address, size_t bytes, int protection) {
  SignalsBlocked blocked;
  if (protection & PROT_WRITE) protection |= PROT_READ;  // processors cannot map a page for writing only
  bool readable = (protection & PROT_READ) != 0;
  protections_changed_.store(true);
  // A page that may not be read cannot be held for eviction, so it must not be near. The kernel refuses accesses to it
  // before it reports a fault, so it stays away; accesses in between find it sealed.
  int error = 0;
  table_.for_each_part(address, bytes, [&](std::byte* at, PageIndex first, uint64_t count) {
    if (!readable) ranges_.seal(first, count);
    error = os::mprotect(at, count * kPageSize, protection);
    if (error != 0 || readable) ranges_.unseal(first, count);
    return error == 0;
  });
  return error ? Status::error(-error, "mprotect failed") : Status();
}

void AddressSpace::guard_page(uint64_t address) {
  LockGuard guard(protection_mutex_);
  // The page may have been committed meanwhile; or it is sealed, and the kernel refuses the access by itself.
  PageWord now = table_[table_.index_of(address)].load();
  if (!now.is(PageState::kUnmapped) || now.is_foreign()) return;
  protections_changed_.store(true);
  os::mprotect(reinterpret_cast<void*>(align_down(address, kPageSize)), kPageSize, PROT_NONE);
}

bool AddressSpace::is_committed(const std::byte* address, size_t bytes) {
  if (!table_.contains(number(address)) || table_.contained_bytes(number(address), bytes) < bytes) return false;
  return table_.for_each_part(
      address, bytes, [&](std::byte*, PageIndex first, uint64_t count) { return ranges_.all_mapped(first, count); });
}

Status AddressSpace::add_region(std::byte* address, size_t bytes, PolicyKind policy) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  if (!table_.in_space(number(address))) return Status::error(EINVAL, "regions are in the far space only");
  return policies_.add(table_.index_of(number(address)), bytes / kPageSize, policy);
}

void AddressSpace::remove_region(std::byte* address) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  policies_.remove(table_.index_of(number(address)));
}

// ---- fork ----

uint64_t AddressSpace::used_pages() const {
  return (addresses_.used_end(begin() + space_.bytes()) - begin()) / kPageSize;
}

void AddressSpace::lock_for_fork() {
  address_mutex_.lock();
  charge_.lock();
  protection_mutex_.lock();
}

void AddressSpace::unlock_after_fork() {
  protection_mutex_.unlock();
  charge_.unlock();
  address_mutex_.unlock();
}

void AddressSpace::inherit_in_fork(bool inherit) {
  SignalsBlocked blocked;
  LockGuard guard(address_mutex_);
  inherit_in_fork_ = inherit;
  int advice = inherit ? MADV_DOFORK : MADV_DONTFORK;
  for_each_far_stretch(
      [&](PageIndex first, uint64_t count) { os::madvise(table_.address_of(first), count * kPageSize, advice); });
  uint64_t used = used_pages() * kPageSize;
  if (used < space_.bytes()) os::madvise(space_.base() + used, space_.bytes() - used, advice);
}

// The kernel dropped all registrations in the child.
int AddressSpace::watch_in_child() {
  int error = space_.open_in_child();
  for_each_far_stretch([&](PageIndex first, uint64_t count) {
    if (!error) error = space_.watch(table_.address_of(first), count * kPageSize);
  });
  uint64_t used = used_pages() * kPageSize;
  if (!error && used < space_.bytes()) error = space_.watch(space_.base() + used, space_.bytes() - used);
  return error;
}

}  // namespace farside::pager
