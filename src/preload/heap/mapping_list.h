// The program's mappings in the far space, and those outside of it that are far or may become far, with what the kernel
// would know of each. The far space itself is one mapping of the kernel, so errors, protections and holes between
// mappings come from this list. Inside of preload/heap. All functions need the lock (Locked), except where noted.
#pragma once
#include <sys/mman.h>

#include <map>
#include <utility>

#include "pager/pager.h"

namespace farside::preload {

enum class Kind : uint8_t {
  kReserved,  // PROT_NONE since it was mapped: addresses, for which no memory is reserved
  kFar,       // committed far memory
  kForeign,   // in the far space: a file, a device or near memory; the kernel knows its attributes
};

struct Mapping {
  // What calls of the program have made of it.
  static constexpr uint16_t kLocked = 1 << 0;   // mlock: not really, but some calls are refused then
  static constexpr uint16_t kSealed = 1 << 1;   // mseal
  static constexpr uint16_t kGuarded = 1 << 2;  // MADV_GUARD_INSTALL: no access, whatever the protection is
  static constexpr uint16_t kDontFork = 1 << 3;
  static constexpr uint16_t kWipeOnFork = 1 << 4;
  static constexpr uint16_t kRandom = 1 << 5;
  static constexpr uint16_t kSequential = 1 << 6;
  static constexpr uint16_t kHuge = 1 << 7;
  static constexpr uint16_t kNoHuge = 1 << 8;
  static constexpr uint16_t kMergeable = 1 << 9;
  static constexpr uint16_t kDontDump = 1 << 10;

  uint64_t end = 0;
  Kind kind = Kind::kReserved;
  uint8_t protection = PROT_NONE;
  uint16_t flags = 0;
  // How far mremap has moved its pages from where they were first used. The kernel joins areas only if it is the same.
  uint64_t moved_by = 0;

  bool has(uint16_t flag) const { return (flags & flag) != 0; }
  bool is_same(const Mapping& other) const {
    return kind == other.kind && protection == other.protection && flags == other.flags && moved_by == other.moved_by;
  }
  // Whether the kernel would have both in one area (VMA). Guards are in its page tables.
  bool is_same_area(const Mapping& other) const {
    bool foreign = kind == Kind::kForeign || other.kind == Kind::kForeign;
    bool same_flags = ((flags ^ other.flags) & ~kGuarded) == 0;
    return !foreign && same_flags && protection == other.protection && moved_by == other.moved_by;
  }
  // The protection that its pages have: what can be written or executed can be read.
  int page_protection() const { return has(kGuarded) || protection == PROT_NONE ? PROT_NONE : protection | PROT_READ; }
};

inline constexpr uint64_t kAddressEnd = (uint64_t{1} << 47) - kPageSize;  // of what a program can map

using Mappings = std::map<uint64_t, Mapping, std::less<>, NearAllocator<std::pair<const uint64_t, Mapping>>>;

// Holds the lock of the list, with signals blocked. Far memory may be touched meanwhile.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  SignalsBlocked blocked_;
};
// The lock by itself. Trying fails also if no mapping lies outside of the far space.
void lock_mapping_list();
void unlock_mapping_list();
bool try_lock_mapping_list();

void create_mapping_list(pager::Pager* pager);
Mappings& mappings();
// Without the lock; nullptr before far memory is in use.
pager::Pager* mapping_pager();

// ---- Without the lock ----

bool in_far_space(const void* address);
// Whether a call for this address may concern listed mappings.
bool may_be_listed(const void* address);
// Where a range crosses the border of the far space; 0: nowhere. Both parts belong to the program: mappings may adjoin.
size_t until_border(const void* address, size_t bytes);
// Applies a call to the parts of such a range, one after the other.
template <typename Apply>
long apply_to_parts(void* address, size_t bytes, size_t first, Apply apply) {
  long r = apply(address, first);
  return r != 0 ? r : apply(static_cast<std::byte*>(address) + first, bytes - first);
}

// ---- Looking ----

// The mapping at an address; nullptr: none is listed.
const Mapping* listed_at(uint64_t address);
bool is_listed(uint64_t begin, uint64_t end);
bool is_listed_as(uint64_t address, Kind kind);
bool any_sealed(uint64_t begin, uint64_t end);
// Of addresses in the far space that are not listed: whether they are of the malloc heap.
bool is_heap(uint64_t address);

// -ENOMEM if some page of the range is not mapped, else 0.
int find_hole(uint64_t begin, uint64_t end);

void split_at(uint64_t address);
// Joins equal neighbours in and beside a range.
void join(uint64_t begin, uint64_t end);

// Makes begin and end boundaries, and calls visit(iterator) for each mapping in between, and gap(begin, end) for what
// lies between them. Stops at the first non-zero result. A visit may erase its mapping.
template <typename Visit, typename Gap>
int for_each_mapping(uint64_t begin, uint64_t end, Visit visit, Gap gap) {
  split_at(begin);
  split_at(end);
  uint64_t at = begin;
  int result = 0;
  for (auto it = mappings().lower_bound(begin); result == 0 && it != mappings().end() && it->first < end;) {
    auto here = it++;
    uint64_t here_begin = here->first, here_end = here->second.end;
    if (here_begin > at) result = gap(at, here_begin);
    if (result == 0) result = visit(here);
    at = here_end;
  }
  if (result == 0 && at < end) result = gap(at, end);
  join(begin, end);
  return result;
}
// A gap of addresses in the far space consists of stretches of the malloc heap, heap(begin, end), and of holes.
template <typename Heap, typename Hole>
int for_each_stretch(uint64_t begin, uint64_t end, Heap heap, Hole hole) {
  for (uint64_t at = begin; at < end;) {
    bool is = is_heap(at);
    uint64_t next = at + kPageSize;
    while (next < end && is_heap(next) == is) next += kPageSize;
    if (int result = is ? heap(at, next) : hole(at, next)) return result;
    at = next;
  }
  return 0;
}

// The lowest addresses are never far: page numbers are lent by windows, and a window at address 0 is none.
inline bool is_lowest(const void* address) { return number(address) < pager::PageTable::kWindowBytes; }

// ---- Changing ----

Mappings::iterator list(std::byte* address, size_t bytes, const Mapping& attributes);
// Makes a reservation far memory. -ENOSPC: outside of the far space, no page numbers are left for it.
int commit(Mappings::iterator it);
// Lists a range of reserved addresses with these attributes (kind and end are set here); commits and protects it unless
// it is only a reservation. On failure it is dropped. Returns the address.
long enter(std::byte* address, size_t bytes, const Mapping& attributes);
// Takes the mappings of a range off the list. Its addresses in the far space are free afterwards; outside, they stay
// mapped until the caller unmaps or replaces them. moved_away: what was there is not mapped any more, and the kernel
// may have mapped something new.
void remove(uint64_t begin, uint64_t end, bool moved_away = false);
// Takes a range of the far space, whatever is mapped there.
bool take_place(std::byte* address, size_t bytes);
// Free addresses of the far space again, after something else was mapped there.
void restore(std::byte* address, size_t bytes, bool moved_away = false);
// Places something that is not far memory at reserved addresses of the far space: place() makes the system call.
template <typename Place>
long enter_foreign(std::byte* address, size_t bytes, Place place) {
  mapping_pager()->addresses().abandon(address, bytes);
  long r = place();
  if (os::is_error(r)) restore(address, bytes);
  else list(address, bytes, {.kind = Kind::kForeign});
  return r;
}
// The attributes of what is mapped from now on.
Mapping new_mapping(int protection);
void lock_future_mappings(bool lock);

// As munmap and mmap; with the lock held.
long unmap_range(uint64_t begin, uint64_t end);
// Maps memory outside of the far space, at a place that the kernel grants. It is far from the moment when it is
// committed, at once or later.
long map_outside(std::byte* wanted, size_t bytes, int flags, const Mapping& attributes);

// As map_outside at exactly these addresses, which must be free. An error: no far memory can be had there.
long map_far_at(std::byte* place, size_t bytes, int flags, const Mapping& attributes);

void set_protection(uint64_t begin, uint64_t bytes, int protection);
// Whether a far page has more than zeros. Pages that are not mapped yet are not touched.
bool has_content(uint64_t page);
// Copies the content of a part of a far mapping to memory that can be written.
void copy_far(uint64_t to, uint64_t from, uint64_t bytes, const Mapping& source);

// Copies to memory of the program; -EFAULT: it cannot be written there. Far memory must be near, as by pins.
long copy_to_program(void* to, const void* from, size_t bytes);

}  // namespace farside::preload
