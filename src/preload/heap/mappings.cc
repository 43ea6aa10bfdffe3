#include "preload/heap/mappings.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/log.h"
#include "preload/heap/limits.h"
#include "preload/heap/mapping_list.h"
#include "preload/trace/trace.h"

namespace farside::preload {
namespace {

constexpr size_t kMinBytes = 64 * kKiB;  // smaller mappings stay near
constexpr int kStayNear = MAP_SHARED | MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB | MAP_32BIT | MAP_LOCKED;

// The program's mapping is of a kind that is far memory.
bool is_far_kind(int flags) { return (flags & MAP_PRIVATE) && (flags & MAP_ANONYMOUS) && !(flags & kStayNear); }

Growth growth_of(int protection, int flags) {
  bool data = (protection & PROT_WRITE) && (flags & MAP_PRIVATE) && !(flags & MAP_GROWSDOWN);
  return data ? Growth::kData : Growth::kAddresses;
}

bool is_noreplace(int flags) { return (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE; }

// What the kernel refuses whatever is mapped is left to it.
bool is_possible(size_t bytes, off_t offset) {
  return bytes > 0 && bytes <= kAddressEnd && is_aligned(static_cast<uint64_t>(offset), kPageSize);
}

long near_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  long near = os::mmap(address, bytes, protection, flags, fd, offset);
  if (tracing() && (protection & PROT_EXEC)) trace_code_change();
  return near;
}

// The error with which the kernel would refuse to map the file, at any address; 0: none. A call with MAP_FIXED that
// fails must not have dropped what was there. Drivers may refuse other places and sizes, which says nothing.
int refusal(int protection, int flags, int fd, off_t offset) {
  if (flags & (MAP_ANONYMOUS | MAP_HUGETLB)) return (flags & MAP_TYPE) == 0 ? -EINVAL : 0;
  long r = os::mmap(nullptr, kPageSize, protection, flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE), fd, offset);
  if (!os::is_error(r)) os::munmap(reinterpret_cast<void*>(r), kPageSize);
  bool final = r == -EBADF || r == -EACCES || r == -EPERM || r == -ENODEV || r == -EOVERFLOW;
  return final ? static_cast<int>(r) : 0;
}

long map_in_space(std::byte* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool far = is_far_kind(flags & ~MAP_LOCKED);
  uint64_t begin = number(address);
  Locked locked;
  if (is_noreplace(flags)) {
    if (!mapping_pager()->addresses().reserve_at(address, bytes)) return -EEXIST;
  } else {
    int error = far ? 0 : refusal(protection, flags, fd, offset);
    if (!error && any_sealed(begin, begin + bytes)) error = -EPERM;
    if (error) return error;
    if (!take_place(address, bytes)) return -ENOMEM;
  }
  if (far) return enter(address, bytes, new_mapping(protection));
  int fixed = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
  return enter_foreign(address, bytes, [&] { return near_mmap(address, bytes, protection, fixed, fd, offset); });
}

// MAP_FIXED and MAP_FIXED_NOREPLACE outside of the far space.
long map_fixed_outside(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  bool far = is_far_kind(flags);
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  bool may_be_far = may_be_listed(address) || (far && bytes >= kMinBytes);
  if (!may_be_far || !is_aligned(begin, kPageSize) || !is_possible(bytes, offset) || end > kAddressEnd)
    return near_mmap(address, bytes, protection, flags, fd, offset);
  Locked locked;
  bool listed = is_listed(begin, end);
  if (listed && !is_noreplace(flags)) {
    int error = far ? 0 : refusal(protection, flags, fd, offset);
    if (!error && any_sealed(begin, end)) error = -EPERM;
    if (error) return error;
    remove(begin, end);
  }
  if (far && (listed || bytes >= kMinBytes))
    return map_outside(static_cast<std::byte*>(address), end - begin, flags, new_mapping(protection));
  return near_mmap(address, bytes, protection, flags, fd, offset);
}

bool wants_far(size_t bytes, int flags) { return bytes >= kMinBytes && is_far_kind(flags); }

// At no place in particular. Larger than the far space, it is far where it is committed later.
long map_anywhere(size_t bytes, int protection, int flags) {
  std::byte* place = mapping_pager()->addresses().reserve(bytes, bytes >= 2 * kMiB ? 2 * kMiB : kPageSize);
  if (!place && protection == PROT_NONE) return map_outside(nullptr, bytes, flags, new_mapping(protection));
  long r = place ? enter(place, bytes, new_mapping(protection)) : -ENOMEM;
  // What the program does not expect to be backed by memory.
  return r == -ENOMEM && (flags & MAP_NORESERVE) ? os::mmap(nullptr, bytes, protection, flags, -1, 0) : r;
}

}  // namespace

void enable_far_mappings(pager::Pager* pager) { create_mapping_list(pager); }
void lock_mappings() { lock_mapping_list(); }
void unlock_mappings() { unlock_mapping_list(); }

void inherit_far_memory(bool inherit) {
  Locked locked;
  mapping_pager()->addresses().inherit_in_fork(inherit);
}

void visit_far_mappings_outside(void (*visit)(void*, uint64_t, uint64_t), void* argument) {
  if (!try_lock_mapping_list()) return;
  pager::PageTable& table = mapping_pager()->table();
  for (const auto& [begin, mapping] : mappings()) {
    for (uint64_t at = begin; at < mapping.end && !table.in_space(at); at += kPageSize) {
      if (table.contains(at) && !table.is_foreign(at)) visit(argument, at, at + kPageSize);
    }
  }
  unlock_mapping_list();
}

namespace {

// MADV_WIPEONFORK: zeros, and no guards.
void wipe(uint64_t begin, Mapping& m) {
  if (m.kind != Kind::kFar) return;
  size_t bytes = m.end - begin;
  mapping_pager()->addresses().discard(pointer(begin), bytes);
  if (!m.has(Mapping::kGuarded)) return;
  m.flags &= static_cast<uint16_t>(~Mapping::kGuarded);
  Status opened = mapping_pager()->addresses().protect(pointer(begin), bytes, m.page_protection());
  if (!opened.ok()) log(LogLevel::kError, "internal error: a guard stays in a forked child (error {})", opened.code());
}

}  // namespace

void change_mappings_in_child() {
  Locked locked;
  for (auto next = mappings().begin(); next != mappings().end();) {
    uint64_t begin = next->first, end = next->second.end;
    Mapping& m = next->second;
    ++next;
    if (m.has(Mapping::kDontFork)) {
      remove(begin, end);
      if (!in_far_space(pointer(begin))) os::munmap(pointer(begin), end - begin);
      next = mappings().upper_bound(begin);
    } else if (m.has(Mapping::kWipeOnFork)) {
      wipe(begin, m);
    }
  }
}

namespace {

// A place in the far space that the program demands. Errors in the order in which the kernel finds them.
long map_at_place(std::byte* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (bytes == 0 || !is_aligned(static_cast<uint64_t>(offset), kPageSize)) return -EINVAL;
  if (bytes > kAddressEnd) return -ENOMEM;
  if (!is_aligned(number(address), kPageSize)) return -EINVAL;
  if (until_border(address, bytes) > 0) return -ENOMEM;  // no program could have such a place
  return map_in_space(address, align_up(bytes, kPageSize), protection, flags, fd, offset);
}

long map_far(std::byte* hint, size_t bytes, int protection, int flags) {
  Locked locked;
  if (hint && !in_far_space(hint) && until_border(hint, bytes) == 0) {
    long r = map_far_at(hint, bytes, flags, new_mapping(protection));
    if (!os::is_error(r)) return r;
  }
  return map_anywhere(bytes, protection, flags);
}

}  // namespace

long far_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (!mapping_pager()) return near_mmap(address, bytes, protection, flags, fd, offset);
  bool adds = is_possible(bytes, offset) && ((flags & MAP_FIXED) == 0 || is_noreplace(flags));
  if (adds && !is_within_limits(bytes, growth_of(protection, flags))) return -ENOMEM;
  if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
    if (in_far_space(address))
      return map_at_place(static_cast<std::byte*>(address), bytes, protection, flags, fd, offset);
    if (is_possible(bytes, offset) && until_border(address, bytes) > 0) return -ENOMEM;
    return map_fixed_outside(address, bytes, protection, flags, fd, offset);
  }
  std::byte* hint = pointer(align_down(number(address), kPageSize));
  if (in_far_space(hint) && is_possible(bytes, offset)) {  // free addresses there are free, however small the mapping
    long r = map_at_place(hint, bytes, protection, flags | MAP_FIXED_NOREPLACE, fd, offset);
    if (!os::is_error(r)) return r;
  }
  bool near = !wants_far(bytes, flags) || (hint && is_lowest(hint));
  if (near || !is_possible(bytes, offset)) return near_mmap(address, bytes, protection, flags, fd, offset);
  return map_far(hint, align_up(bytes, kPageSize), protection, flags);
}

long far_map_break(uint64_t begin, uint64_t end) {
  Locked locked;
  return map_outside(pointer(begin), end - begin, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                     new_mapping(PROT_READ | PROT_WRITE));
}

long far_munmap(void* address, size_t bytes) {
  uint64_t begin = number(address), size = align_up(bytes, kPageSize);
  bool possible = is_aligned(begin, kPageSize) && size > 0 && size <= kAddressEnd && begin <= kAddressEnd - size;
  if (!possible) return -EINVAL;
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, far_munmap);
  if (!may_be_listed(address)) return os::munmap(address, bytes);
  Locked locked;
  return unmap_range(begin, begin + size);
}

namespace {

int protect_heap(uint64_t begin, uint64_t end, int protection) {
  return -mapping_pager()->addresses().protect(pointer(begin), end - begin, protection).code();
}

// A reservation becomes far memory when it may be accessed for the first time. It is near if no page numbers are left.
int protect_reserved(Mappings::iterator it, int protection) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  if (protection == PROT_NONE) return 0;
  int error = commit(it);
  if (error == -ENOSPC) {
    mappings().erase(it);
    return os::mprotect(address, bytes, protection);
  }
  if (error) return error;
  it->second.protection = static_cast<uint8_t>(protection);
  int wanted = it->second.page_protection();
  return wanted == (PROT_READ | PROT_WRITE) ? 0 : -mapping_pager()->addresses().protect(address, bytes, wanted).code();
}

int protect(Mappings::iterator it, int protection) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  if (it->second.has(Mapping::kSealed)) return -EPERM;
  if (it->second.kind == Kind::kForeign) return os::mprotect(address, bytes, protection);
  if (it->second.kind == Kind::kReserved) return protect_reserved(it, protection);
  it->second.protection = static_cast<uint8_t>(protection);
  if (it->second.has(Mapping::kGuarded)) return 0;
  return -mapping_pager()->addresses().protect(address, bytes, it->second.page_protection()).code();
}

// Whether the kernel would refuse the protection of any memory.
bool is_wrong_protection(int protection) {
  constexpr int kSem = 8;
  return (protection & ~(PROT_READ | PROT_WRITE | PROT_EXEC | kSem)) != 0;
}

}  // namespace

long far_mprotect(void* address, size_t bytes, int protection) {
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  bool near = !may_be_listed(address) && until_border(address, bytes) == 0;
  if (near || bytes == 0 || !is_aligned(begin, kPageSize)) return os::mprotect(address, bytes, protection);
  if (end <= begin || end > kAddressEnd) return -ENOMEM;
  if (is_wrong_protection(protection)) return -EINVAL;
  auto part = [&](void* at, size_t size) { return far_mprotect(at, size, protection); };
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, part);
  Locked locked;
  bool outside = !in_far_space(address);
  auto gap = [&](uint64_t from, uint64_t to) {
    if (outside) return os::mprotect(pointer(from), to - from, protection);
    return for_each_stretch(
        from, to, [&](uint64_t low, uint64_t high) { return protect_heap(low, high, protection); },
        [](uint64_t, uint64_t) { return -ENOMEM; });
  };
  int kept = protection & (PROT_READ | PROT_WRITE | PROT_EXEC);
  return for_each_mapping(
      begin, end, [&](Mappings::iterator it) { return protect(it, kept); }, gap);
}

long far_pkey_mprotect(void* address, size_t bytes, int protection, int key) {
  if (key == -1) return far_mprotect(address, bytes, protection);
  if (may_be_listed(address)) {
    long r = far_mprotect(address, bytes, protection);
    if (r != 0) return r;
  }
  return os::call(SYS_pkey_mprotect, address, bytes, protection, key);
}

long far_mseal(void* address, size_t bytes, unsigned long flags) {
  uint64_t begin = number(address), size = align_up(bytes, kPageSize), end = begin + size;
  bool is_range = flags == 0 && is_aligned(begin, kPageSize) && end > begin && size >= bytes;
  if (!is_range || (!may_be_listed(address) && until_border(address, bytes) == 0))
    return os::call(kMseal, address, bytes, flags);
  if (long refused = os::call(kMseal, address, 0, 0)) return refused;  // kernels before 6.10
  auto part = [&](void* at, size_t length) { return far_mseal(at, length, flags); };
  if (size_t first = until_border(address, bytes)) return apply_to_parts(address, bytes, first, part);
  Locked locked;
  if (int hole = find_hole(begin, end)) return hole;
  bool outside = !in_far_space(address);
  auto visit = [](Mappings::iterator it) {
    it->second.flags |= Mapping::kSealed;
    bool foreign = it->second.kind == Kind::kForeign;
    return foreign ? static_cast<int>(os::call(kMseal, it->first, it->second.end - it->first, 0)) : 0;
  };
  auto gap = [&](uint64_t from, uint64_t to) {
    return outside ? static_cast<int>(os::call(kMseal, from, to - from, 0)) : 0;
  };
  return for_each_mapping(begin, end, visit, gap);
}

}  // namespace farside::preload
