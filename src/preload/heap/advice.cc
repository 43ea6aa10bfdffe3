// Calls that neither make nor change mappings: advice, locks, and questions of what is mapped. Arguments are checked as
// the kernel checks them (mm/madvise.c, mincore.c, msync.c, mlock.c).
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "preload/heap/mapping_list.h"
#include "preload/heap/mappings.h"

namespace farside::preload {
namespace {

// Numbers that older headers lack.
constexpr int kDontNeedLocked = 24, kCollapse = 25, kHwPoison = 100, kSoftOffline = 101;

bool is_writable(const Mapping& m) { return (m.protection & PROT_WRITE) != 0; }

// What sealed memory is protected against.
bool loses_content(int advice) {
  return advice == MADV_DONTNEED || advice == MADV_FREE || advice == kDontNeedLocked || advice == MADV_DONTFORK ||
         advice == MADV_WIPEONFORK || advice == kGuardInstall;
}

bool is_refused_when_locked(int advice) {
  return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_COLD || advice == MADV_PAGEOUT ||
         advice == kGuardInstall;
}

// How advice changes the flags of a mapping.
uint16_t advised_flags(uint16_t flags, int advice) {
  using M = Mapping;
  constexpr uint16_t kOrders = M::kRandom | M::kSequential, kSizes = M::kHuge | M::kNoHuge;
  auto with = [&](uint16_t cleared, uint16_t set) { return static_cast<uint16_t>((flags & ~cleared) | set); };
  switch (advice) {
    case MADV_NORMAL:
      return with(kOrders, 0);
    case MADV_RANDOM:
      return with(kOrders, M::kRandom);
    case MADV_SEQUENTIAL:
      return with(kOrders, M::kSequential);
    case MADV_HUGEPAGE:
      return with(kSizes, M::kHuge);
    case MADV_NOHUGEPAGE:
      return with(kSizes, M::kNoHuge);
    case MADV_DONTFORK:
      return with(0, M::kDontFork);
    case MADV_DOFORK:
      return with(M::kDontFork, 0);
    case MADV_WIPEONFORK:
      return with(0, M::kWipeOnFork);
    case MADV_KEEPONFORK:
      return with(M::kWipeOnFork, 0);
    case MADV_DONTDUMP:
      return with(0, M::kDontDump);
    case MADV_DODUMP:
      return with(M::kDontDump, 0);
    case MADV_MERGEABLE:
      return with(0, M::kMergeable);
    case MADV_UNMERGEABLE:
      return with(M::kMergeable, 0);
    case kGuardInstall:
      return with(0, M::kGuarded);
    case kGuardRemove:
      return with(M::kGuarded, 0);
    default:
      return flags;
  }
}

// The error with which the kernel refuses the advice about this memory, or 0.
int refusal(const Mapping& m, int advice) {
  if (m.has(Mapping::kSealed) && loses_content(advice) && !is_writable(m)) return -EPERM;
  if (m.has(Mapping::kLocked) && is_refused_when_locked(advice)) return -EINVAL;
  switch (advice) {
    case MADV_REMOVE:  // of files only
      return -EINVAL;
    case kHwPoison:
    case kSoftOffline:
      return -EPERM;
    case MADV_POPULATE_READ:
      if (!(m.protection & PROT_READ)) return -EINVAL;
      return m.has(Mapping::kGuarded) ? -EFAULT : 0;
    case MADV_POPULATE_WRITE:
      if (!is_writable(m)) return -EINVAL;
      return m.has(Mapping::kGuarded) ? -EFAULT : 0;
    default:
      return 0;
  }
}

int guard(std::byte* address, size_t bytes) {
  Status protected_ = mapping_pager()->addresses().protect(address, bytes, PROT_NONE);
  mapping_pager()->addresses().discard(address, bytes);
  return -protected_.code();
}

// A range without a multiple of 2 MiB in it has no huge page to collapse.
int collapse(std::byte* address, size_t bytes) {
  return align_up(number(address), 2 * kMiB) + 2 * kMiB <= number(address) + bytes ? 0 : -EINVAL;
}

// Advice for far memory, which may be a part of the malloc heap.
int advise_far(std::byte* address, size_t bytes, const Mapping& m, int advice) {
  pager::Pager& pager = *mapping_pager();
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
    case kDontNeedLocked:
      pager.addresses().discard(address, bytes);
      return 0;
    case MADV_COLD:
    case MADV_PAGEOUT:
      pager.paging().evict_first(address, bytes);
      return 0;
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
      pager.paging().advise(address, bytes, advice);
      return 0;
    case kGuardInstall:
      return m.has(Mapping::kGuarded) ? 0 : guard(address, bytes);
    case kGuardRemove:
      return m.has(Mapping::kGuarded)
                 ? -pager.addresses()
                        .protect(address, bytes, Mapping{.protection = m.protection}.page_protection())
                        .code()
                 : 0;
    case kCollapse:
      return collapse(address, bytes);
    default:
      return 0;  // fetch_ahead() does it, the flags say it, or it has no effect on far memory
  }
}

int advise_mapping(Mappings::iterator it, int advice) {
  std::byte* at = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  Mapping& m = it->second;
  if (m.kind == Kind::kForeign) return os::madvise(at, bytes, advice);
  if (int refused = refusal(m, advice)) return refused;
  int error = m.kind == Kind::kFar ? advise_far(at, bytes, m, advice) : 0;
  if (error == 0) m.flags = advised_flags(m.flags, advice);
  return error;
}

int advise_heap(uint64_t begin, uint64_t end, int advice) {
  Mapping heap = {.kind = Kind::kFar, .protection = PROT_READ | PROT_WRITE};
  if (advice == kGuardRemove) heap.flags = Mapping::kGuarded;
  int refused = refusal(heap, advice);
  return refused ? refused : advise_far(pointer(begin), end - begin, heap, advice);
}

// Of parts that are not mapped the kernel reports ENOMEM, after it has advised the others; it populates up to the
// first.
int advise_mappings(uint64_t begin, uint64_t end, int advice) {
  bool outside = !in_far_space(pointer(begin));
  bool stops = advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;
  bool hole = false;
  auto note_hole = [&](uint64_t, uint64_t) {
    hole = true;
    return stops ? -ENOMEM : 0;
  };
  Locked locked;
  auto gap = [&](uint64_t from, uint64_t to) {
    auto heap = [&](uint64_t low, uint64_t high) { return advise_heap(low, high, advice); };
    if (!outside) return for_each_stretch(from, to, heap, note_hole);
    int r = os::madvise(pointer(from), to - from, advice);
    return r == -ENOMEM ? note_hole(from, to) : r;
  };
  int error = for_each_mapping(
      begin, end, [&](Mappings::iterator it) { return advise_mapping(it, advice); }, gap);
  return error == 0 && hole ? -ENOMEM : error;
}

// Without the lock of the mappings: a part that is unmapped meanwhile is skipped. So is what the kernel manages, which
// has no page words.
void fetch_ahead(uint64_t begin, uint64_t end, int advice) {
  bool waits = advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;
  if (!waits && advice != MADV_WILLNEED) return;
  for (uint64_t at = begin; at < end;) {
    bool known = mapping_pager()->table().contains(at);
    uint64_t next = at;
    do next = align_up(next + 1, pager::PageTable::kWindowBytes);
    while (next < end && mapping_pager()->table().contains(next) == known);
    next = std::min(next, end);
    if (known) mapping_pager()->paging().fetch_range(pointer(at), next - at, advice == MADV_POPULATE_WRITE, waits);
    at = next;
  }
}

// Old advice is known to all kernels; of the rest the kernel says whether it knows it.
int unknown_advice(int advice) {
  return advice >= 0 && advice <= MADV_WILLNEED + 1 ? 0 : os::madvise(mapping_pager()->space().base(), 0, advice);
}

}  // namespace

long far_madvise(void* address, size_t bytes, int advice) {
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  bool near = !may_be_listed(address) && until_border(address, bytes) == 0;
  if (near || !is_aligned(begin, kPageSize) || end <= begin) return os::madvise(address, bytes, advice);
  if (int error = unknown_advice(advice)) return error;
  auto part = [&](void* at, size_t size) { return far_madvise(at, size, advice); };
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, part);
  long r = advise_mappings(begin, end, advice);
  if (r == 0 || r == -ENOMEM) fetch_ahead(begin, end, advice);
  return r;
}

namespace {

// A byte for each page: whether it has content. Swapped out or not, natively it would not have left.
void look_at_pages(uint64_t begin, uint64_t end, unsigned char* resident) {
  using pager::PageState;
  for (uint64_t at = begin; at < end; at += kPageSize) {
    pager::PageWord word = mapping_pager()->table().word(at);
    *resident++ = !word.is(PageState::kUntouched) && !word.is(PageState::kUnmapped);
  }
}

int look_at_range(uint64_t begin, uint64_t end, unsigned char* resident) {
  bool outside = !in_far_space(pointer(begin));
  auto place = [&](uint64_t at) { return resident + (at - begin) / kPageSize; };
  auto ask_kernel = [&](uint64_t from, uint64_t to) {
    return static_cast<int>(os::call(SYS_mincore, from, to - from, place(from)));
  };
  auto visit = [&](Mappings::iterator it) {
    uint64_t from = it->first, to = it->second.end;
    if (it->second.kind == Kind::kForeign) return ask_kernel(from, to);
    if (it->second.kind == Kind::kFar) look_at_pages(from, to, place(from));
    else std::fill(place(from), place(to), 0);
    return 0;
  };
  auto heap = [&](uint64_t from, uint64_t to) {
    look_at_pages(from, to, place(from));
    return 0;
  };
  auto gap = [&](uint64_t from, uint64_t to) {
    return outside ? ask_kernel(from, to)
                   : for_each_stretch(from, to, heap, [](uint64_t, uint64_t) { return -ENOMEM; });
  };
  return for_each_mapping(begin, end, visit, gap);
}

}  // namespace

long far_mincore(void* address, size_t bytes, unsigned char* resident) {
  constexpr size_t kPagesAtOnce = 1024;
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  bool near = !may_be_listed(address) && until_border(address, bytes) == 0;
  if (near || !is_aligned(begin, kPageSize) || end <= begin || end > kAddressEnd)
    return os::call(SYS_mincore, address, bytes, resident);
  Locked locked;
  for (uint64_t at = begin; at < end;) {
    uint64_t next = std::min(end, at + kPagesAtOnce * kPageSize);
    if (size_t first = until_border(pointer(at), next - at)) next = at + first;
    unsigned char piece[kPagesAtOnce];
    if (int error = look_at_range(at, next, piece)) return error;
    long copied = copy_to_program(resident + (at - begin) / kPageSize, piece, (next - at) / kPageSize);
    if (copied < 0) return copied;
    at = next;
  }
  return 0;
}

long far_msync(void* address, size_t bytes, int flags) {
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  bool near = !may_be_listed(address) && until_border(address, bytes) == 0;
  bool wrong = (flags & ~(MS_ASYNC | MS_SYNC | MS_INVALIDATE)) || ((flags & MS_ASYNC) && (flags & MS_SYNC));
  if (near || wrong || !is_aligned(begin, kPageSize) || end <= begin) return os::call(SYS_msync, address, bytes, flags);
  auto part = [&](void* at, size_t size) { return far_msync(at, size, flags); };
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, part);
  bool outside = !in_far_space(address), hole = false;
  Locked locked;
  auto visit = [&](Mappings::iterator it) {
    if (it->second.kind == Kind::kForeign)
      return static_cast<int>(os::call(SYS_msync, it->first, it->second.end - it->first, flags));
    return (flags & MS_INVALIDATE) && it->second.has(Mapping::kLocked) ? -EBUSY : 0;
  };
  auto note_hole = [&](uint64_t, uint64_t) {
    hole = true;
    return 0;
  };
  auto gap = [&](uint64_t from, uint64_t to) {
    if (!outside)
      return for_each_stretch(
          from, to, [](uint64_t, uint64_t) { return 0; }, note_hole);
    auto r = static_cast<int>(os::call(SYS_msync, from, to - from, flags));
    return r == -ENOMEM ? note_hole(from, to) : r;
  };
  int error = for_each_mapping(begin, end, visit, gap);
  return error == 0 && hole ? -ENOMEM : error;
}

// ---- Locks ----

namespace {

void warn_of_locks() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  log(LogLevel::kWarning, "the program locks its memory (mlock); Farside ignores this, and evicts far memory as usual");
}

void set_locked(Mapping& m, bool locked) {
  m.flags = static_cast<uint16_t>(locked ? m.flags | Mapping::kLocked : m.flags & ~Mapping::kLocked);
}

long lock_all(long call_number, long flags) {
  bool lock = call_number == SYS_mlockall;
  bool wrong = lock && (flags == 0 || flags == MCL_ONFAULT || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)));
  if (wrong) return -EINVAL;
  if (!lock) os::call(SYS_munlockall);
  else warn_of_locks();
  Locked locked;
  lock_future_mappings(lock && (flags & MCL_FUTURE));
  if (lock && !(flags & MCL_CURRENT)) return 0;
  for (auto& [begin, mapping] : mappings()) set_locked(mapping, lock);
  return 0;
}

long lock_range(long call_number, uint64_t begin, uint64_t end, long flags) {
  bool lock = call_number != SYS_munlock, outside = !in_far_space(pointer(begin));
  bool populates = call_number == SYS_mlock || (call_number == SYS_mlock2 && (flags & MLOCK_ONFAULT) == 0);
  bool inaccessible = false;  // the kernel locks such memory, and fails to populate it
  auto kernels = [&](uint64_t from, uint64_t to) {
    long r = os::call(call_number, from, to - from, flags);
    bool is_hole = r == -ENOMEM && os::is_error(os::call(SYS_msync, from, to - from, MS_ASYNC));
    if (r != -ENOMEM || is_hole) return static_cast<int>(r);
    inaccessible = true;
    return 0;
  };
  Locked locked;
  auto visit = [&](Mappings::iterator it) {
    if (it->second.kind == Kind::kForeign) return kernels(it->first, it->second.end);
    if (lock) warn_of_locks();
    set_locked(it->second, lock);
    inaccessible = inaccessible || it->second.page_protection() == PROT_NONE;
    return 0;
  };
  auto heap = [&](uint64_t, uint64_t) {
    if (lock) warn_of_locks();
    return 0;
  };
  auto gap = [&](uint64_t from, uint64_t to) {
    return outside ? kernels(from, to) : for_each_stretch(from, to, heap, [](uint64_t, uint64_t) { return -ENOMEM; });
  };
  int error = for_each_mapping(begin, end, visit, gap);
  return error == 0 && populates && inaccessible ? -ENOMEM : error;
}

}  // namespace

long far_mlock(long call_number, void* address, size_t bytes, long flags) {
  if (mapping_pager() && (call_number == SYS_mlockall || call_number == SYS_munlockall))
    return lock_all(call_number, static_cast<long>(number(address)));
  uint64_t begin = align_down(number(address), kPageSize), end = align_up(number(address) + bytes, kPageSize);
  bool near = !may_be_listed(address) && until_border(pointer(begin), end - begin) == 0;
  bool wrong = end <= begin || bytes == 0 || (call_number == SYS_mlock2 && (flags & ~MLOCK_ONFAULT));
  if (near || wrong) return os::call(call_number, address, bytes, flags);
  auto part = [&](void* at, size_t size) { return far_mlock(call_number, at, size, flags); };
  if (size_t first = until_border(pointer(begin), end - begin))
    return apply_to_parts(pointer(begin), end - begin, first, part);
  return lock_range(call_number, begin, end, flags);
}

}  // namespace farside::preload
