// mremap. What is far memory is moved by copying, with its protection and its other attributes, since pages of the far
// space have fixed places on the server. Arguments are checked as in mm/mremap.c of the kernel.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "preload/heap/limits.h"
#include "preload/heap/mapping_list.h"
#include "preload/heap/mappings.h"

namespace farside::preload {
namespace {

#ifdef MREMAP_DONTUNMAP
constexpr int kDontUnmap = MREMAP_DONTUNMAP;
#else
constexpr int kDontUnmap = 4;
#endif

struct Request {
  uint64_t begin, old_bytes, new_bytes;  // whole pages
  int flags;
  uint64_t place;

  uint64_t end() const { return begin + old_bytes; }
  bool has(int flag) const { return (flags & flag) != 0; }
  bool names_place() const { return has(MREMAP_FIXED | kDontUnmap); }
};

bool is_wrong_place(const Request& r) {
  bool overlaps = r.place < r.end() && r.begin < r.place + r.new_bytes;
  bool resizes = r.has(kDontUnmap) && r.old_bytes != r.new_bytes;
  return r.place > kAddressEnd - r.new_bytes || !is_aligned(r.place, kPageSize) || !r.has(MREMAP_MAYMOVE) || resizes ||
         overlaps;
}

// What the kernel refuses whatever is mapped.
bool is_wrong(const Request& r) {
  bool unknown = (r.flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap)) != 0;
  if (unknown || !is_aligned(r.begin, kPageSize) || r.new_bytes == 0 || r.new_bytes > kAddressEnd) return true;
  return r.names_place() && is_wrong_place(r);
}

// The kernel's area (VMA) at an address, as far as its end or `limit`.
struct Area {
  Mapping attributes;
  uint64_t end;
};

std::optional<Area> area_at(uint64_t begin, uint64_t limit) {
  const Mapping* first = listed_at(begin);
  if (!first) {
    Area heap = {{.kind = Kind::kFar, .protection = PROT_READ | PROT_WRITE}, begin};
    while (in_far_space(pointer(begin)) && heap.end < limit && !listed_at(heap.end) && is_heap(heap.end))
      heap.end += kPageSize;
    return heap.end > begin ? std::optional(heap) : std::nullopt;
  }
  Area area = {*first, first->end};
  for (const Mapping* next = first; area.end < limit && next; area.end = next->end) {
    next = listed_at(area.end);
    if (!next || !next->is_same_area(*first)) break;
  }
  return area;
}

long issue(const Request& r) { return os::call(SYS_mremap, r.begin, r.old_bytes, r.new_bytes, r.flags, r.place); }

// ---- Moving far memory ----

// Gives far memory that is listed already its attributes.
void set_attributes(uint64_t begin, uint64_t bytes, const Mapping& attributes) {
  auto set = [&](Mappings::iterator it) {
    it->second.protection = attributes.protection;
    it->second.flags = attributes.flags;
    it->second.moved_by = attributes.moved_by;
    return 0;
  };
  for_each_mapping(begin, begin + bytes, set, [](uint64_t, uint64_t) { return 0; });
  if (attributes.page_protection() != (PROT_READ | PROT_WRITE))
    set_protection(begin, bytes, attributes.page_protection());
}

// Copies a part of a mapping to reserved addresses.
long copy_part(uint64_t from, uint64_t bytes, uint64_t to, const Mapping& source) {
  if (source.kind == Kind::kReserved) return enter(pointer(to), bytes, source);
  Mapping open = source;
  open.protection = PROT_READ | PROT_WRITE;
  open.flags &= static_cast<uint16_t>(~Mapping::kGuarded);
  long entered = enter(pointer(to), bytes, open);
  bool near = entered == -ENOSPC;  // outside of the far space, and no page numbers are left for it
  if (near) entered = os::mmap(pointer(to), bytes, open.protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (os::is_error(entered)) return entered;
  copy_far(to, from, bytes, source);
  if (near) os::mprotect(pointer(to), bytes, source.page_protection());
  else set_attributes(to, bytes, source);
  return entered;
}

// Frees the place of a move that failed: what was entered before `done`, and what was not entered from `rest` on. What
// is in between was dropped when it could not be entered.
long give_up(uint64_t to, uint64_t done, uint64_t rest, uint64_t end, long error) {
  remove(to, done);
  if (!in_far_space(pointer(to))) os::munmap(pointer(to), end - to);
  else if (rest < end) mapping_pager()->addresses().release(pointer(rest), end - rest);
  return error;
}

// Whether a page of the range has content.
bool was_used(uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end; at += kPageSize) {
    if (!is_listed_as(at, Kind::kReserved) && has_content(at)) return true;
  }
  return false;
}

// Copies a range, whose attributes are those of `area` but for guards, to reserved addresses, and continues with fresh
// memory of the area up to the new size. On failure the addresses are free.
long copy_range(const Request& r, uint64_t to, const Mapping& area) {
  uint64_t kept = std::min(r.old_bytes, r.new_bytes), to_end = to + r.new_bytes;
  uint64_t moved_by = was_used(r.begin, r.begin + kept) ? area.moved_by + (to - r.begin) : 0;
  for (uint64_t at = r.begin; at < r.begin + kept;) {
    const Mapping* mapping = listed_at(at);
    Mapping part = mapping ? *mapping : area;
    part.moved_by = moved_by;
    uint64_t end = std::min(mapping ? mapping->end : r.end(), r.begin + kept);
    long copied = copy_part(at, end - at, to + (at - r.begin), part);
    if (os::is_error(copied)) return give_up(to, to + (at - r.begin), to + (end - r.begin), to_end, copied);
    at = end;
  }
  if (r.new_bytes == kept) return 0;
  Mapping fresh = area;
  fresh.flags &= static_cast<uint16_t>(~Mapping::kGuarded);
  fresh.moved_by = moved_by;
  long entered = enter(pointer(to + kept), r.new_bytes - kept, fresh);
  return os::is_error(entered) ? give_up(to, to + kept, to_end, to_end, entered) : 0;
}

// Reserved addresses for a range that moves. Outside of the far space the kernel reserves them.
long claim_place(const Request& r) {
  std::byte* place = pointer(r.place);
  if (r.has(MREMAP_FIXED)) {
    if (in_far_space(place)) return take_place(place, r.new_bytes) ? static_cast<long>(r.place) : -ENOMEM;
    remove(r.place, r.place + r.new_bytes);
    return os::mmap(place, r.new_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  bool hinted = r.has(kDontUnmap) && in_far_space(place) && mapping_pager()->addresses().reserve_at(place, r.new_bytes);
  if (!hinted)
    place = mapping_pager()->addresses().reserve(r.new_bytes, r.new_bytes >= 2 * kMiB ? 2 * kMiB : kPageSize);
  if (place) return reinterpret_cast<long>(place);
  return os::mmap(nullptr, r.new_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// MREMAP_DONTUNMAP: what was moved away is mapped still, and empty.
void empty(uint64_t begin, uint64_t end) {
  auto visit = [](Mappings::iterator it) {
    bool guarded = it->second.has(Mapping::kGuarded);  // which has moved, too
    it->second.flags &= static_cast<uint16_t>(~(Mapping::kLocked | Mapping::kGuarded));
    if (it->second.kind != Kind::kFar) return 0;
    mapping_pager()->addresses().discard(pointer(it->first), it->second.end - it->first);
    if (guarded) set_protection(it->first, it->second.end - it->first, it->second.page_protection());
    return 0;
  };
  auto heap = [](uint64_t from, uint64_t to) {
    mapping_pager()->addresses().discard(pointer(from), to - from);
    return 0;
  };
  for_each_mapping(begin, end, visit, heap);
}

long move(const Request& r, const Mapping& area) {
  long claimed = claim_place(r);
  if (os::is_error(claimed)) return claimed;
  auto to = static_cast<uint64_t>(claimed);
  long copied = copy_range(r, to, area);
  if (os::is_error(copied)) return copied;
  if (r.has(kDontUnmap) || !is_listed(r.begin, r.end())) empty(r.begin, r.end());  // or of the malloc heap
  else unmap_range(r.begin, r.end());
  return claimed;
}

bool grow_in_place(const Request& r, const Mapping& area) {
  std::byte* more = pointer(r.end());
  size_t bytes = r.new_bytes - r.old_bytes;
  Mapping fresh = area;
  fresh.flags &= static_cast<uint16_t>(~Mapping::kGuarded);
  if (!in_far_space(pointer(r.begin))) return !os::is_error(map_far_at(more, bytes, 0, fresh));
  if (!in_far_space(more + bytes - 1) || !mapping_pager()->addresses().reserve_at(more, bytes)) return false;
  return !os::is_error(enter(more, bytes, fresh));
}

long remap_far(Request r) {
  if (!r.names_place() && r.new_bytes == r.old_bytes) return static_cast<long>(r.begin);
  if (!r.names_place() && r.new_bytes < r.old_bytes) {
    long error = unmap_range(r.begin + r.new_bytes, r.end());
    return error ? error : static_cast<long>(r.begin);
  }
  if (r.old_bytes == 0) return -EINVAL;
  uint64_t kept_end = r.begin + std::min(r.old_bytes, r.new_bytes);
  std::optional<Area> area = area_at(r.begin, kept_end);
  if (!area || area->end < kept_end) return -EFAULT;
  if (!r.names_place()) {
    if (grow_in_place(r, area->attributes)) return static_cast<long>(r.begin);
    return r.has(MREMAP_MAYMOVE) ? move(r, area->attributes) : -ENOMEM;
  }
  if (r.has(MREMAP_FIXED) && any_sealed(r.place, r.place + r.new_bytes)) return -EPERM;
  if (r.new_bytes < r.old_bytes) {
    if (long error = unmap_range(r.begin + r.new_bytes, r.end())) return error;
    r.old_bytes = r.new_bytes;
  }
  return move(r, area->attributes);
}

// ---- What is not far memory, but may lie in the far space or be moved there ----

long move_into_space(const Request& r) {
  if (!take_place(pointer(r.place), r.new_bytes)) return -ENOMEM;
  return enter_foreign(pointer(r.place), r.new_bytes, [&] { return issue(r); });
}

// Grows what the kernel manages in the far space, if the addresses behind it are free.
bool grow_foreign_in_place(const Request& r) {
  std::byte* more = pointer(r.end());
  size_t bytes = r.new_bytes - r.old_bytes;
  if (!in_far_space(more + bytes - 1) || !mapping_pager()->addresses().reserve_at(more, bytes)) return false;
  auto grow = [&] {
    os::munmap(more, bytes);
    return os::call(SYS_mremap, r.begin, r.old_bytes, r.new_bytes, 0, 0);
  };
  return !os::is_error(enter_foreign(more, bytes, grow));
}

long remap_foreign(const Request& r);

// A second mapping of shared memory, at a place: of other memory the kernel refuses it.
long duplicate_to_place(const Request& r) {
  long copy = os::call(SYS_mremap, r.begin, 0, r.new_bytes, MREMAP_MAYMOVE, 0);
  if (os::is_error(copy)) return copy;
  return remap_foreign({static_cast<uint64_t>(copy), r.new_bytes, r.new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, r.place});
}

long remap_foreign(const Request& r) {
  // What is at the place is dropped before, which must not happen if the kernel refuses the call.
  long nothing = os::call(SYS_mremap, r.begin, kPageSize, kPageSize, 0, 0);
  if (os::is_error(nothing)) return nothing;
  if (r.has(MREMAP_FIXED) && r.old_bytes == 0) return duplicate_to_place(r);
  if (r.has(MREMAP_FIXED) && any_sealed(r.place, r.place + r.new_bytes)) return -EPERM;
  if (in_far_space(pointer(r.begin)) && r.new_bytes < r.old_bytes && !r.has(MREMAP_FIXED)) {
    long error = unmap_range(r.begin + r.new_bytes, r.end());
    return error ? error : static_cast<long>(r.begin);
  }
  bool grows = in_far_space(pointer(r.begin)) && r.new_bytes > r.old_bytes && r.old_bytes > 0 && !r.names_place();
  if (grows && grow_foreign_in_place(r)) return static_cast<long>(r.begin);
  bool into_space = r.has(MREMAP_FIXED) && in_far_space(pointer(r.place));
  if (r.has(MREMAP_FIXED) && !into_space) remove(r.place, r.place + r.new_bytes);
  long result = into_space ? move_into_space(r) : issue(r);
  bool moved = !os::is_error(result) && static_cast<uint64_t>(result) != r.begin;
  if (moved && r.old_bytes > 0 && !r.has(kDontUnmap)) remove(r.begin, r.end(), true);
  return result;
}

long remap(const Request& r) {
  const Mapping* mapping = listed_at(r.begin);
  bool in_space = in_far_space(pointer(r.begin));
  if (!mapping && in_space && !is_heap(r.begin)) return -EFAULT;
  if (mapping && mapping->has(Mapping::kSealed)) return -EPERM;
  bool far = mapping ? mapping->kind != Kind::kForeign : in_space;
  return far ? remap_far(r) : remap_foreign(r);
}

// Linux 6.17 and later move several areas at once if they are not resized, and keep the holes between them.
bool kernel_moves_several() {
  static std::atomic<int> known{-1};
  if (known.load() < 0) {
    utsname name = {};
    os::call(SYS_uname, &name);
    char* rest;
    unsigned long major = strtoul(name.release, &rest, 10), minor = *rest ? strtoul(rest + 1, nullptr, 10) : 0;
    known.store(major > 6 || (major == 6 && minor >= 17));
  }
  return known.load() == 1;
}

// Where memory that the kernel manages ends, from `at` on; `at`: nothing is mapped there. Holes between its areas are
// found, since what is at the place of a hole stays.
uint64_t end_of_mapped(uint64_t at, uint64_t limit) {
  auto is_mapped = [](uint64_t from, uint64_t to) {  // the call has no other effect
    return !os::is_error(os::call(SYS_msync, from, to - from, MS_ASYNC));
  };
  if (is_mapped(at, limit)) return limit;
  while (at < limit && is_mapped(at, at + kPageSize)) at += kPageSize;
  return at;
}

// The end of what is moved as one, from `at` on: an area, or what the kernel manages. None: there is a hole.
std::optional<uint64_t> end_of_part(uint64_t at, uint64_t limit) {
  if (std::optional<Area> area = area_at(at, limit)) return std::min(area->end, limit);
  if (in_far_space(pointer(at))) return std::nullopt;
  auto next = mappings().lower_bound(at);
  uint64_t end = end_of_mapped(at, next == mappings().end() ? limit : std::min(next->first, limit));
  return end > at ? std::optional(end) : std::nullopt;
}

long move_several(const Request& r) {
  long first = -EFAULT;
  for (uint64_t at = r.begin; at < r.end();) {
    std::optional<uint64_t> end = end_of_part(at, r.end());
    if (!end && at == r.begin) return -EFAULT;
    long moved = end ? remap({at, *end - at, *end - at, r.flags, r.place + (at - r.begin)}) : 0;
    if (os::is_error(moved)) return moved;
    if (at == r.begin) first = moved;
    at = end ? *end : at + kPageSize;
  }
  return first;
}

}  // namespace

long far_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  bool fixed = (flags & MREMAP_FIXED) != 0;
  if (!may_be_listed(address) && !(fixed && may_be_listed(new_address)))
    return os::call(SYS_mremap, address, old_bytes, new_bytes, flags, new_address);
  Request r = {number(address), align_up(old_bytes, kPageSize), align_up(new_bytes, kPageSize), flags,
               number(new_address)};
  if (is_wrong(r)) return -EINVAL;
  if (r.new_bytes > r.old_bytes && !is_within_limits(r.new_bytes - r.old_bytes, Growth::kData)) return -ENOMEM;
  Locked locked;
  bool several = fixed && r.old_bytes == r.new_bytes && kernel_moves_several();
  return several ? move_several(r) : remap(r);
}

}  // namespace farside::preload
