#include "preload/heap/mappings.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "base/log.h"
#include "preload/trace/trace.h"

namespace farside::preload {
namespace {

constexpr size_t kMinBytes = 64 * kKiB;  // smaller mappings stay near
constexpr int kStayNear = MAP_SHARED | MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB | MAP_32BIT | MAP_LOCKED;

struct Mapping {
  uint64_t end;
  bool committed;  // false: PROT_NONE since it was mapped; no memory is reserved for it yet
};
using Mappings = std::map<uint64_t, Mapping, std::less<>, NearAllocator<std::pair<const uint64_t, Mapping>>>;

pager::Pager* g_pager = nullptr;
// Guards g_mappings; held while mappings change, before the pager's own locks (docs/internals/locking.md).
Mutex g_mutex;
alignas(Mappings) char g_storage[sizeof(Mappings)];

Mappings& mappings() { return *reinterpret_cast<Mappings*>(g_storage); }
std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }
uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

bool in_far_space(const void* address) { return g_pager && g_pager->contains(number(address)); }

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

// Makes begin and end boundaries, and calls visit(iterator) for each mapping in between. Stops at the first non-zero
// result.
template <typename Visit>
int for_each_mapping(uint64_t begin, uint64_t end, Visit visit) {
  split_at(begin);
  split_at(end);
  for (auto it = mappings().lower_bound(begin); it != mappings().end() && it->first < end;) {
    auto here = it++;
    if (int error = visit(here)) return error;
  }
  return 0;
}

int commit(uint64_t begin, Mapping& mapping) {
  if (mapping.committed) return 0;
  Status s = g_pager->commit(pointer(begin), mapping.end - begin);
  if (!s.ok()) {
    log(LogLevel::kError, "far memory is full: a mapping of {} bytes is refused ({})", mapping.end - begin, s.text());
    return -ENOMEM;
  }
  mapping.committed = true;
  return 0;
}

void remove(uint64_t begin, uint64_t end) {
  for_each_mapping(begin, end, [](Mappings::iterator it) {
    size_t bytes = it->second.end - it->first;
    if (it->second.committed) g_pager->decommit(pointer(it->first), bytes);
    g_pager->release(pointer(it->first), bytes);
    mappings().erase(it);
    return 0;
  });
}

// Commits and protects a reserved range, and adds it to the list. On failure the range is released.
long enter(std::byte* address, size_t bytes, int protection) {
  Mapping mapping = {number(address) + bytes, false};
  if (protection != PROT_NONE) {
    int error = commit(number(address), mapping);
    if (error) {
      g_pager->release(address, bytes);
      return error;
    }
    if (protection != (PROT_READ | PROT_WRITE)) {
      Status s = g_pager->protect(address, bytes, protection);
      if (!s.ok()) {
        g_pager->decommit(address, bytes);
        g_pager->release(address, bytes);
        return -s.code();
      }
    }
  }
  mappings().insert_or_assign(number(address), mapping);
  if (tracing()) trace_allocation(address, bytes);
  return reinterpret_cast<long>(address);
}

long map_fixed(std::byte* address, size_t bytes, int protection, int flags) {
  if (flags & (kStayNear & ~MAP_LOCKED)) {
    log(LogLevel::kError, "a mapping of this kind cannot be placed inside far memory; refused (mmap flags {:#x})",
        flags);
    return -EINVAL;
  }
  if (!(flags & MAP_ANONYMOUS)) {
    log(LogLevel::kError, "a file cannot be mapped over far memory with MAP_FIXED; refused. Run the program natively");
    return -EINVAL;
  }
  Locked locked;
  if ((flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE) {
    if (!g_pager->reserve_at(address, bytes)) return -EEXIST;
    return enter(address, bytes, protection);
  }
  remove(number(address), number(address) + bytes);
  if (!g_pager->reserve_at(address, bytes)) return -ENOMEM;
  return enter(address, bytes, protection);
}

bool wants_far(size_t bytes, int flags) {
  return bytes >= kMinBytes && (flags & MAP_PRIVATE) && (flags & MAP_ANONYMOUS) && !(flags & kStayNear);
}

// Copies a mapping to a place that is mapped already, and unmaps the old one. Page faults fetch and evict as usual.
void copy_and_unmap(std::byte* to, std::byte* from, size_t old_bytes, size_t new_bytes) {
  memcpy(to, from, old_bytes < new_bytes ? old_bytes : new_bytes);
  far_munmap(from, old_bytes);
}

bool is_error(long address) { return address < 0 && address > -4096; }

long move_anywhere(std::byte* from, size_t old_bytes, size_t new_bytes) {
  size_t mapped = new_bytes < kMinBytes ? kMinBytes : new_bytes;
  long to = far_mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (is_error(to)) return to;
  copy_and_unmap(pointer(static_cast<uint64_t>(to)), from, old_bytes, new_bytes);
  if (new_bytes < mapped) far_munmap(pointer(static_cast<uint64_t>(to)) + new_bytes, mapped - new_bytes);
  return to;
}

long move_to_place(std::byte* from, size_t old_bytes, size_t new_bytes, std::byte* place) {
  bool overlap = place < from + old_bytes && from < place + new_bytes;
  if (overlap || !is_aligned(number(place), kPageSize)) return -EINVAL;
  long to = far_mmap(place, new_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (!is_error(to)) copy_and_unmap(place, from, old_bytes, new_bytes);
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

void lock_mappings() { g_mutex.lock(); }
void unlock_mappings() { g_mutex.unlock(); }

long far_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
  if (fixed && in_far_space(address)) {
    if (bytes == 0 || !is_aligned(number(address), kPageSize)) return -EINVAL;
    return map_fixed(static_cast<std::byte*>(address), align_up(bytes, kPageSize), protection, flags);
  }
  if (!g_pager || fixed || !wants_far(bytes, flags)) {
    long near = os::mmap(address, bytes, protection, flags, fd, offset);
    if (tracing() && (protection & PROT_EXEC)) trace_code_change();
    return near;
  }
  bytes = align_up(bytes, kPageSize);
  Locked locked;
  std::byte* place = nullptr;
  if (in_far_space(address) && g_pager->reserve_at(static_cast<std::byte*>(address), bytes))
    place = static_cast<std::byte*>(address);
  if (!place) place = g_pager->reserve(bytes, bytes >= 2 * kMiB ? 2 * kMiB : kPageSize);
  return place ? enter(place, bytes, protection) : -ENOMEM;
}

long far_munmap(void* address, size_t bytes) {
  if (!in_far_space(address)) return os::munmap(address, bytes);
  if (bytes == 0 || !is_aligned(number(address), kPageSize)) return -EINVAL;
  Locked locked;
  remove(number(address), number(address) + align_up(bytes, kPageSize));
  return 0;
}

long far_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  if (!in_far_space(address)) return os::call(SYS_mremap, address, old_bytes, new_bytes, flags, new_address);
  if (!is_aligned(number(address), kPageSize) || new_bytes == 0) return -EINVAL;
  bool fixed = (flags & MREMAP_FIXED) != 0;
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

long far_mprotect(void* address, size_t bytes, int protection) {
  if (!in_far_space(address)) return os::mprotect(address, bytes, protection);
  if (!is_aligned(number(address), kPageSize)) return -EINVAL;
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  Locked locked;
  bool inside = false;
  int error = for_each_mapping(begin, end, [&](Mappings::iterator it) {
    inside = true;
    if (!it->second.committed && protection == PROT_NONE) return 0;
    bool fresh = !it->second.committed;
    if (int full = commit(it->first, it->second)) return full;
    if (fresh && protection == (PROT_READ | PROT_WRITE)) return 0;
    return -g_pager->protect(pointer(it->first), it->second.end - it->first, protection).code();
  });
  if (inside || error) return error;
  // Memory of the malloc heap, which jemalloc manages: only the protection changes.
  return -g_pager->protect(static_cast<std::byte*>(address), end - begin, protection).code();
}

long far_madvise(void* address, size_t bytes, int advice) {
  if (!in_far_space(address)) return os::madvise(address, bytes, advice);
  if (!is_aligned(number(address), kPageSize)) return -EINVAL;
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
      // Also inside the malloc heap. Pages that belong to no allocation are skipped.
      g_pager->discard(static_cast<std::byte*>(address), end - begin);
      return 0;
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
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

long far_mlock(long call_number, void* address, size_t bytes, long flags) {
  static std::atomic<bool> warned{false};
  bool all = call_number == SYS_mlockall;
  if (!all && !in_far_space(address)) return os::call(call_number, address, bytes, flags);
  if (!warned.exchange(true))
    log(LogLevel::kWarning,
        "the program locks its memory (mlock); Farside ignores this, and evicts far memory as usual");
  return 0;
}

}  // namespace farside::preload
