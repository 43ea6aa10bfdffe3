#include "preload/heap/mappings.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/log.h"
#include "preload/trace/trace.h"

namespace farside::preload {
namespace {

constexpr size_t kMinBytes = 64 * kKiB;  // smaller mappings stay near
#ifdef MREMAP_DONTUNMAP
constexpr int kDontUnmap = MREMAP_DONTUNMAP;
#else
constexpr int kDontUnmap = 4;
#endif
constexpr int kStayNear = MAP_SHARED | MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB | MAP_32BIT | MAP_LOCKED;

enum class Kind : uint8_t {
  kReserved,  // PROT_NONE since it was mapped: addresses, for which no memory is reserved
  kFar,       // committed far memory
  kForeign,   // in the far space: a file, a device or shared memory that the program mapped there
};

struct Mapping {
  uint64_t end;
  Kind kind;
};
using Mappings = std::map<uint64_t, Mapping, std::less<>, NearAllocator<std::pair<const uint64_t, Mapping>>>;

pager::Pager* g_pager = nullptr;
// Guards g_mappings; held while mappings change, before the pager's own locks (docs/internals/locking.md).
Mutex g_mutex;
// The mappings in the far space, and those outside of it that are far or may become far: reservations that the program
// placed itself, or that are larger than the far space.
alignas(Mappings) char g_storage[sizeof(Mappings)];
// Some mapping lies outside of the far space. Until then calls for near memory take no lock.
std::atomic<bool> g_any_outside{false};

Mappings& mappings() { return *reinterpret_cast<Mappings*>(g_storage); }
std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }
uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }
bool in_far_space(const void* address) { return g_pager && g_pager->in_space(number(address)); }
// Whether the call may concern listed mappings.
bool may_be_listed(const void* address) { return g_pager && (in_far_space(address) || g_any_outside.load()); }

// Holds the lock of the list of mappings, with signals blocked.
struct Locked {
  SignalsBlocked blocked;
  LockGuard<Mutex> guard{g_mutex};
};

// Makes `address` a boundary between mappings.
void split_at(uint64_t address) {
  auto it = mappings().upper_bound(address);
  if (it == mappings().begin()) return;
  --it;
  if (it->first == address || it->second.end <= address) return;
  Mapping rest = it->second;
  it->second.end = address;
  mappings().emplace(address, rest);
}

bool is_listed(uint64_t begin, uint64_t end) {
  auto it = mappings().lower_bound(end);
  return it != mappings().begin() && std::prev(it)->second.end > begin;
}

bool is_listed_as(uint64_t address, Kind kind) {
  auto it = mappings().upper_bound(address);
  return it != mappings().begin() && std::prev(it)->second.end > address && std::prev(it)->second.kind == kind;
}

// Makes begin and end boundaries, and calls visit(iterator) for each mapping in between, and gap(begin, end) for what
// lies between them. Stops at the first non-zero result.
template <typename Visit, typename Gap>
int for_each_mapping(uint64_t begin, uint64_t end, Visit visit, Gap gap) {
  split_at(begin);
  split_at(end);
  uint64_t at = begin;
  for (auto it = mappings().lower_bound(begin); it != mappings().end() && it->first < end;) {
    auto here = it++;
    uint64_t here_begin = here->first, here_end = here->second.end;
    if (here_begin > at) {
      if (int error = gap(at, here_begin)) return error;
    }
    if (int error = visit(here)) return error;
    at = here_end;
  }
  return at < end ? gap(at, end) : 0;
}

// The listed range without gaps around a mapping, at most to the next multiples of 1 GiB: what is likely to be
// committed later.
std::pair<uint64_t, uint64_t> surroundings(Mappings::iterator it) {
  uint64_t begin = it->first, end = it->second.end;
  uint64_t low = align_down(begin, kGiB), high = align_up(end, kGiB);
  for (auto at = it; at != mappings().begin() && begin > low;) {
    --at;
    if (at->second.end != begin) break;
    begin = at->first;
  }
  for (auto at = std::next(it); at != mappings().end() && at->first == end && end < high; ++at) end = at->second.end;
  return {std::max(begin, low), std::min(end, high)};
}

// Makes a reservation far memory. ENOSPC: outside of the far space, no page numbers are left for it.
int commit(Mappings::iterator it) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  bool outside = !in_far_space(address);
  if (outside) {
    auto [begin, end] = surroundings(it);
    Status adopted = g_pager->adopt(address, bytes, pointer(begin), pointer(end));
    if (!adopted.ok()) return -adopted.code();
  }
  Status s = g_pager->commit(address, bytes);
  if (!s.ok()) {
    log(LogLevel::kError, "far memory is full: a mapping of {} bytes is refused ({})", bytes, s.text());
    if (outside) {
      g_pager->abandon(address, bytes);
      os::mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    return -ENOMEM;
  }
  it->second.kind = Kind::kFar;
  return 0;
}

Mappings::iterator list(std::byte* address, size_t bytes, Kind kind) {
  if (!in_far_space(address)) g_any_outside.store(true);
  return mappings().insert_or_assign(number(address), Mapping{number(address) + bytes, kind}).first;
}

// Free addresses of the far space again, after something else was mapped there. moved_away: it is not mapped any more,
// and the kernel may have mapped something new there.
void restore(std::byte* address, size_t bytes, bool moved_away = false) {
  Status adopted = moved_away ? g_pager->adopt_unmapped(address, bytes) : g_pager->adopt(address, bytes);
  if (adopted.ok()) return g_pager->release(address, bytes);
  list(address, bytes, Kind::kForeign);
}

// Drops the mapping. Its addresses in the far space are free afterwards; outside, they stay mapped until the caller
// unmaps or replaces them.
void drop(Mappings::iterator it, bool moved_away = false) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  Kind kind = it->second.kind;
  mappings().erase(it);
  if (kind == Kind::kFar) g_pager->decommit(address, bytes);
  if (kind == Kind::kForeign) return restore(address, bytes, moved_away);
  if (in_far_space(address)) g_pager->release(address, bytes);
  else if (kind == Kind::kFar) g_pager->abandon(address, bytes);
}

int ignore_gap(uint64_t, uint64_t) { return 0; }

void remove(uint64_t begin, uint64_t end, bool moved_away = false) {
  auto visit = [&](Mappings::iterator it) {
    drop(it, moved_away);
    return 0;
  };
  for_each_mapping(begin, end, visit, ignore_gap);
}

// Lists a reservation; commits and protects it, unless it is only a reservation. On failure it is dropped.
long enter(std::byte* address, size_t bytes, int protection) {
  auto it = list(address, bytes, Kind::kReserved);
  if (protection != PROT_NONE) {
    int error = commit(it);
    if (!error && protection != (PROT_READ | PROT_WRITE)) error = -g_pager->protect(address, bytes, protection).code();
    if (error) {
      drop(it);
      return error;
    }
  }
  if (tracing()) trace_allocation(address, bytes);
  return reinterpret_cast<long>(address);
}

// The program's mapping is of a kind that is far memory.
bool is_far_kind(int flags) { return (flags & MAP_PRIVATE) && (flags & MAP_ANONYMOUS) && !(flags & kStayNear); }

bool is_noreplace(int flags) { return (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE; }

long near_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  long near = os::mmap(address, bytes, protection, flags, fd, offset);
  if (tracing() && (protection & PROT_EXEC)) trace_code_change();
  return near;
}

// The error with which the kernel would refuse to map the file, at any address; 0: none. A call with MAP_FIXED that
// fails must not have dropped what was there. Drivers may refuse other places and sizes, which says nothing.
int refusal(int protection, int flags, int fd, off_t offset) {
  if (flags & (MAP_ANONYMOUS | MAP_HUGETLB)) return 0;
  long r = os::mmap(nullptr, kPageSize, protection, flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE), fd, offset);
  if (!os::is_error(r)) os::munmap(reinterpret_cast<void*>(r), kPageSize);
  bool final = r == -EBADF || r == -EACCES || r == -EPERM || r == -ENODEV;
  return final ? static_cast<int>(r) : 0;
}

// Takes a range of the far space, whatever is mapped there.
bool take_place(std::byte* address, size_t bytes) {
  remove(number(address), number(address) + bytes);
  return g_pager->reserve_at(address, bytes);
}

// Places something that is not far memory at reserved addresses of the far space: place() makes the system call.
template <typename Place>
long enter_foreign(std::byte* address, size_t bytes, Place place) {
  g_pager->abandon(address, bytes);
  long r = place();
  if (os::is_error(r)) restore(address, bytes);
  else list(address, bytes, Kind::kForeign);
  return r;
}

long map_in_space(std::byte* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool far = is_far_kind(flags & ~MAP_LOCKED);
  Locked locked;
  if (is_noreplace(flags)) {
    if (!g_pager->reserve_at(address, bytes)) return -EEXIST;
  } else {
    int error = far ? 0 : refusal(protection, flags, fd, offset);
    if (error) return error;
    if (!take_place(address, bytes)) return -ENOMEM;
  }
  if (far) return enter(address, bytes, protection);
  int fixed = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
  return enter_foreign(address, bytes, [&] { return near_mmap(address, bytes, protection, fixed, fd, offset); });
}

// Maps near memory where page numbers were not granted.
long near_instead(std::byte* address, size_t bytes, int protection, int flags) {
  int fixed = (flags & ~(MAP_FIXED_NOREPLACE | MAP_POPULATE)) | MAP_FIXED;
  return os::mmap(address, bytes, protection, fixed, -1, 0);
}

// Maps memory at a place that the kernel grants: where the program wants it, or wherever a reservation fits that is
// larger than the far space. It is far from the moment when it is committed, at once or later.
long map_outside(std::byte* wanted, size_t bytes, int protection, int flags) {
  long r = os::mmap(wanted, bytes, protection, (flags & ~MAP_POPULATE) | MAP_NORESERVE, -1, 0);
  if (os::is_error(r)) return r;
  std::byte* address = pointer(static_cast<uint64_t>(r));
  long entered = enter(address, bytes, protection);
  if (!os::is_error(entered)) return entered;
  if (entered == -ENOSPC) return near_instead(address, bytes, protection, flags);
  // The server is full. What the program does not expect to be backed by memory is near.
  if (entered == -ENOMEM && (flags & MAP_NORESERVE)) return near_instead(address, bytes, protection, flags);
  os::munmap(address, bytes);
  return entered;
}

// MAP_FIXED and MAP_FIXED_NOREPLACE outside of the far space.
long map_fixed_outside(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool far = is_far_kind(flags);
  if ((!g_any_outside.load() && !(far && bytes >= kMinBytes)) || !is_aligned(number(address), kPageSize))
    return near_mmap(address, bytes, protection, flags, fd, offset);
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  Locked locked;
  bool listed = is_listed(begin, end);
  if (listed && !is_noreplace(flags)) {
    int error = far ? 0 : refusal(protection, flags, fd, offset);
    if (error) return error;
    remove(begin, end);
  }
  if (far && (listed || bytes >= kMinBytes))
    return map_outside(static_cast<std::byte*>(address), end - begin, protection, flags);
  return near_mmap(address, bytes, protection, flags, fd, offset);
}

bool wants_far(size_t bytes, int flags) { return bytes >= kMinBytes && is_far_kind(flags); }

// Copies a mapping to a place that is mapped already, and unmaps the old one. Page faults fetch and evict as usual.
void copy_and_unmap(std::byte* to, std::byte* from, size_t old_bytes, size_t new_bytes) {
  memcpy(to, from, old_bytes < new_bytes ? old_bytes : new_bytes);
  far_munmap(from, old_bytes);
}

long move_anywhere(std::byte* from, size_t old_bytes, size_t new_bytes) {
  size_t mapped = new_bytes < kMinBytes ? kMinBytes : new_bytes;
  long to = far_mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (os::is_error(to)) return to;
  copy_and_unmap(pointer(static_cast<uint64_t>(to)), from, old_bytes, new_bytes);
  if (new_bytes < mapped) far_munmap(pointer(static_cast<uint64_t>(to)) + new_bytes, mapped - new_bytes);
  return to;
}

long move_to_place(std::byte* from, size_t old_bytes, size_t new_bytes, std::byte* place) {
  bool overlap = place < from + old_bytes && from < place + new_bytes;
  if (overlap || !is_aligned(number(place), kPageSize)) return -EINVAL;
  long to = far_mmap(place, new_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (!os::is_error(to)) copy_and_unmap(place, from, old_bytes, new_bytes);
  return to;
}

bool grow_in_place(std::byte* address, size_t old_bytes, size_t new_bytes) {
  Locked locked;
  std::byte* more = address + old_bytes;
  if (!in_far_space(more + (new_bytes - old_bytes) - 1) || !g_pager->reserve_at(more, new_bytes - old_bytes))
    return false;
  return enter(more, new_bytes - old_bytes, PROT_READ | PROT_WRITE) > 0;
}

}  // namespace

void enable_far_mappings(pager::Pager* pager) {
  new (g_storage) Mappings;
  g_pager = pager;
}

void inherit_far_memory(bool inherit) {
  Locked locked;
  g_pager->inherit_in_fork(inherit);
}

void visit_far_mappings_outside(void (*visit)(void*, uint64_t, uint64_t), void* argument) {
  if (!g_any_outside.load() || !g_mutex.try_lock()) return;
  for (const auto& [begin, mapping] : mappings()) {
    for (uint64_t at = begin; at < mapping.end && !g_pager->in_space(at); at += kPageSize) {
      if (g_pager->contains(at) && !g_pager->is_foreign(at)) visit(argument, at, at + kPageSize);
    }
  }
  g_mutex.unlock();
}

void lock_mappings() { g_mutex.lock(); }
void unlock_mappings() { g_mutex.unlock(); }

namespace {

// Where a range crosses the border of the far space; 0: nowhere. Both parts belong to the program: mappings may adjoin.
size_t until_border(const void* address, size_t bytes) {
  if (!g_pager) return 0;
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  uint64_t low = number(g_pager->base()), high = low + g_pager->space_bytes();
  if (begin < low && end > low) return low - begin;
  return begin >= low && begin < high && end > high ? high - begin : 0;
}

// Applies a call to the parts of such a range, one after the other.
template <typename Apply>
long apply_to_parts(void* address, size_t bytes, size_t first, Apply apply) {
  long r = apply(address, first);
  return r != 0 ? r : apply(static_cast<std::byte*>(address) + first, bytes - first);
}

}  // namespace

long far_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
  if (fixed && in_far_space(address)) {
    if (bytes == 0 || !is_aligned(number(address), kPageSize)) return -EINVAL;
    return map_in_space(static_cast<std::byte*>(address), align_up(bytes, kPageSize), protection, flags, fd, offset);
  }
  if (fixed && until_border(address, bytes) > 0) return -ENOMEM;  // no program could have such a place
  if (g_pager && fixed) return map_fixed_outside(address, bytes, protection, flags, fd, offset);
  if (!g_pager || !wants_far(bytes, flags)) return near_mmap(address, bytes, protection, flags, fd, offset);
  bytes = align_up(bytes, kPageSize);
  auto* hint = reinterpret_cast<std::byte*>(align_down(number(address), kPageSize));
  Locked locked;
  if (in_far_space(hint) && g_pager->reserve_at(hint, bytes)) return enter(hint, bytes, protection);
  if (hint && !in_far_space(hint)) {
    long r = map_outside(hint, bytes, protection, flags | MAP_FIXED_NOREPLACE);
    bool near = !os::is_error(r) && protection != PROT_NONE && !is_listed_as(static_cast<uint64_t>(r), Kind::kFar);
    if (near) os::munmap(pointer(static_cast<uint64_t>(r)), bytes);  // far memory elsewhere is better
    else if (!os::is_error(r)) return r;
  }
  if (std::byte* place = g_pager->reserve(bytes, bytes >= 2 * kMiB ? 2 * kMiB : kPageSize))
    return enter(place, bytes, protection);
  // A reservation may be larger than the far space.
  return protection == PROT_NONE ? map_outside(nullptr, bytes, protection, flags) : -ENOMEM;
}

long far_munmap(void* address, size_t bytes) {
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, far_munmap);
  if (!may_be_listed(address)) return os::munmap(address, bytes);
  if (bytes == 0 || !is_aligned(number(address), kPageSize)) return -EINVAL;
  Locked locked;
  remove(number(address), number(address) + align_up(bytes, kPageSize));
  return in_far_space(address) ? 0 : os::munmap(address, bytes);
}

namespace {

// Moves what is not far memory into the far space, as V8 does with its code.
long move_into_space(void* from, size_t old_bytes, size_t new_bytes, int flags, std::byte* place) {
  new_bytes = align_up(new_bytes, kPageSize);
  if (!take_place(place, new_bytes)) return -ENOMEM;
  return enter_foreign(place, new_bytes,
                       [&] { return os::call(SYS_mremap, from, old_bytes, new_bytes, flags, place); });
}

// mremap of what is not far memory, but may lie in the far space or be moved there.
long remap_foreign(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  bool fixed = (flags & MREMAP_FIXED) != 0;
  uint64_t begin = number(address), end = begin + align_up(old_bytes, kPageSize);
  uint64_t to = number(new_address), to_end = to + align_up(new_bytes, kPageSize);
  bool overlap = to < end && begin < to_end;
  if (new_bytes == 0 || !is_aligned(begin, kPageSize)) return -EINVAL;
  if (fixed && (!(flags & MREMAP_MAYMOVE) || !is_aligned(to, kPageSize) || overlap)) return -EINVAL;
  Locked locked;
  if (in_far_space(address) && new_bytes < old_bytes && !fixed) {
    remove(begin + align_up(new_bytes, kPageSize), end);
    return reinterpret_cast<long>(address);
  }
  long r;
  if (fixed && in_far_space(new_address)) {
    r = move_into_space(address, old_bytes, new_bytes, flags, static_cast<std::byte*>(new_address));
  } else {
    if (fixed) remove(number(new_address), number(new_address) + align_up(new_bytes, kPageSize));
    r = os::call(SYS_mremap, address, old_bytes, new_bytes, flags, new_address);
  }
  bool moved = !os::is_error(r) && static_cast<uint64_t>(r) != begin && old_bytes > 0 && !(flags & kDontUnmap);
  if (moved) remove(begin, end, true);
  return r;
}

// Whether the range begins with far memory.
bool begins_far(void* address) {
  if (!may_be_listed(address)) return false;
  Locked locked;
  if (in_far_space(address)) return !is_listed_as(number(address), Kind::kForeign);
  return is_listed_as(number(address), Kind::kFar);
}

}  // namespace

long far_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  bool fixed = (flags & MREMAP_FIXED) != 0;
  if (!begins_far(address)) {
    if (!may_be_listed(address) && !(fixed && may_be_listed(new_address)))
      return os::call(SYS_mremap, address, old_bytes, new_bytes, flags, new_address);
    return remap_foreign(address, old_bytes, new_bytes, flags, new_address);
  }
  if (!is_aligned(number(address), kPageSize) || new_bytes == 0) return -EINVAL;
  if (fixed && !(flags & MREMAP_MAYMOVE)) return -EINVAL;
  if ((flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0 || old_bytes == 0) {
    log(LogLevel::kError, "mremap with flags {:#x} is not supported on far memory; refused", flags);
    return -EINVAL;
  }
  auto* place = static_cast<std::byte*>(address);
  old_bytes = align_up(old_bytes, kPageSize);
  new_bytes = align_up(new_bytes, kPageSize);
  if (!g_pager->is_committed(place, old_bytes)) return -EFAULT;
  if (fixed) return move_to_place(place, old_bytes, new_bytes, static_cast<std::byte*>(new_address));
  if (new_bytes <= old_bytes) {
    if (new_bytes < old_bytes) far_munmap(place + new_bytes, old_bytes - new_bytes);
    return reinterpret_cast<long>(address);
  }
  if (grow_in_place(place, old_bytes, new_bytes)) return reinterpret_cast<long>(address);
  return flags & MREMAP_MAYMOVE ? move_anywhere(place, old_bytes, new_bytes) : -ENOMEM;
}

namespace {

int protect(Mappings::iterator it, int protection) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  if (it->second.kind == Kind::kForeign) return os::mprotect(address, bytes, protection);
  if (it->second.kind == Kind::kReserved) {
    if (protection == PROT_NONE) return 0;
    int error = commit(it);
    if (error == -ENOSPC) {  // no page numbers are left: the memory is near
      mappings().erase(it);
      return os::mprotect(address, bytes, protection);
    }
    if (error || protection == (PROT_READ | PROT_WRITE)) return error;
  }
  return -g_pager->protect(address, bytes, protection).code();
}

}  // namespace

long far_mprotect(void* address, size_t bytes, int protection) {
  auto part = [&](void* at, size_t size) { return far_mprotect(at, size, protection); };
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, part);
  if (!may_be_listed(address)) return os::mprotect(address, bytes, protection);
  if (!is_aligned(number(address), kPageSize)) return -EINVAL;
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  Locked locked;
  // Unlisted memory in the far space is the malloc heap, which jemalloc manages: only the protection changes.
  bool heap = in_far_space(address) && !is_listed(begin, end);
  if (heap) return -g_pager->protect(static_cast<std::byte*>(address), end - begin, protection).code();
  bool outside = !in_far_space(address);
  return for_each_mapping(
      begin, end, [&](Mappings::iterator it) { return protect(it, protection); },
      [&](uint64_t from, uint64_t to) { return outside ? os::mprotect(pointer(from), to - from, protection) : 0; });
}

long far_pkey_mprotect(void* address, size_t bytes, int protection, int key) {
  if (may_be_listed(address)) {
    long r = far_mprotect(address, bytes, protection);
    if (r != 0) return r;
  }
  return os::call(SYS_pkey_mprotect, address, bytes, protection, key);
}

namespace {

// Advice for far memory, or for the malloc heap.
long advise(std::byte* address, size_t bytes, int advice) {
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
      g_pager->discard(address, bytes);  // pages that belong to no allocation are skipped
      return 0;
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
      g_pager->advise(address, bytes, advice);
      return 0;
    case MADV_WILLNEED:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
      return 0;  // by fetch_ahead()
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
      return 0;  // advice about performance, or without effect on far memory
    default:
      return -EINVAL;
  }
}

long advise_mappings(void* address, size_t bytes, int advice) {
  uint64_t begin = number(address), end = begin + bytes;
  bool outside = !in_far_space(address);
  Locked locked;
  auto visit = [&](Mappings::iterator it) {
    bool kernels = it->second.kind == Kind::kForeign || (outside && it->second.kind == Kind::kReserved);
    std::byte* at = pointer(it->first);
    size_t size = it->second.end - it->first;
    return static_cast<int>(kernels ? os::madvise(at, size, advice) : advise(at, size, advice));
  };
  // Of parts that are not mapped the kernel reports ENOMEM, after it has advised the others.
  bool hole = false;
  auto gap = [&](uint64_t from, uint64_t to) {
    if (!outside) return static_cast<int>(advise(pointer(from), to - from, advice));
    int r = os::madvise(pointer(from), to - from, advice);
    hole = hole || r == -ENOMEM;
    return r == -ENOMEM ? 0 : r;
  };
  int error = for_each_mapping(begin, end, visit, gap);
  return error == 0 && hole ? -ENOMEM : error;
}

// Without the lock of the mappings: a part that is unmapped meanwhile is skipped. So is what the kernel manages, which
// has no page words.
void fetch_ahead(std::byte* address, size_t bytes, int advice) {
  bool waits = advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;
  if (!g_pager || (!waits && advice != MADV_WILLNEED)) return;
  uint64_t at = number(address), end = at + bytes;
  while (at < end) {
    bool known = g_pager->contains(at);
    uint64_t next = at;
    do next = align_up(next + 1, pager::PageTable::kWindowBytes);
    while (next < end && g_pager->contains(next) == known);
    next = std::min(next, end);
    if (known) g_pager->fetch_range(pointer(at), next - at, advice == MADV_POPULATE_WRITE, waits);
    at = next;
  }
}

}  // namespace

long far_madvise(void* address, size_t bytes, int advice) {
  auto part = [&](void* at, size_t size) { return far_madvise(at, size, advice); };
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, part);
  if (!may_be_listed(address)) return os::madvise(address, bytes, advice);
  if (!is_aligned(number(address), kPageSize)) return -EINVAL;
  bytes = align_up(bytes, kPageSize);
  long r = advise_mappings(address, bytes, advice);
  if (r == 0 || r == -ENOMEM) fetch_ahead(static_cast<std::byte*>(address), bytes, advice);
  return r;
}

long far_mlock(long call_number, void* address, size_t bytes, long flags) {
  static std::atomic<bool> warned{false};
  bool all = call_number == SYS_mlockall;
  bool far = g_pager && g_pager->contains(number(address)) && !g_pager->is_foreign(number(address));
  if (!all && !far) return os::call(call_number, address, bytes, flags);
  if (!warned.exchange(true))
    log(LogLevel::kWarning,
        "the program locks its memory (mlock); Farside ignores this, and evicts far memory as usual");
  return 0;
}

}  // namespace farside::preload
