#include "preload/heap/kernel_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "preload/heap/mapping_list.h"
#include "preload/heap/mappings.h"

namespace farside::preload {
namespace {

std::atomic<bool> g_heap_was_given{false};

// The advice that says to the kernel what a flag of the list says.
struct Advised {
  uint16_t flag;
  int advice;
};
constexpr Advised kAdvised[] = {
    {Mapping::kGuarded, kGuardInstall},      {Mapping::kDontFork, MADV_DONTFORK},
    {Mapping::kWipeOnFork, MADV_WIPEONFORK}, {Mapping::kRandom, MADV_RANDOM},
    {Mapping::kSequential, MADV_SEQUENTIAL}, {Mapping::kHuge, MADV_HUGEPAGE},
    {Mapping::kNoHuge, MADV_NOHUGEPAGE},     {Mapping::kMergeable, MADV_MERGEABLE},
    {Mapping::kDontDump, MADV_DONTDUMP},
};

void give_attributes(std::byte* address, size_t bytes, const Mapping& from) {
  for (const Advised& one : kAdvised) {
    if (from.has(one.flag)) os::madvise(address, bytes, one.advice);
  }
  if (from.has(Mapping::kLocked)) os::call(SYS_mlock, address, bytes);
  os::mprotect(address, bytes, from.protection);
}

// Pages that the program used cannot be distinguished from those that were made near ahead of their use, but for what
// it wrote.
void unmap_zeros(uint64_t copy, uint64_t source, size_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kPageSize) {
    std::byte* page = pointer(copy + at);
    if (has_content(source + at) && is_zero_page(page)) os::madvise(page, kPageSize, MADV_DONTNEED);
  }
}

// A copy in memory of the kernel's, at another place. Pages that are untouched stay so.
long copy_for_kernel(uint64_t begin, size_t bytes, const Mapping& source, ZeroPages zeros) {
  long copy = os::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (os::is_error(copy)) return copy;
  copy_far(static_cast<uint64_t>(copy), begin, bytes, source);
  if (zeros == ZeroPages::kUnmapped && source.kind == Kind::kFar)
    unmap_zeros(static_cast<uint64_t>(copy), begin, bytes);
  give_attributes(pointer(static_cast<uint64_t>(copy)), bytes, source);
  return copy;
}

// The copy takes the place of far memory.
long replace(uint64_t begin, size_t bytes, Kind kind, uint64_t copy) {
  if (kind == Kind::kFar) mapping_pager()->addresses().decommit(pointer(begin), bytes);
  mapping_pager()->addresses().abandon(pointer(begin), bytes);
  long r = os::call(SYS_mremap, copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, begin);
  if (os::is_error(r)) die("internal error: cannot move memory that the program watches (error {})", -r);
  return r;
}

long give(uint64_t begin, size_t bytes, const Mapping& source, ZeroPages zeros) {
  long copy = copy_for_kernel(begin, bytes, source, zeros);
  return os::is_error(copy) ? copy : replace(begin, bytes, source.kind, static_cast<uint64_t>(copy));
}

int give_mapping(Mappings::iterator it, ZeroPages zeros) {
  uint64_t begin = it->first, bytes = it->second.end - begin;
  Mapping source = it->second;
  uint16_t sealed = source.has(Mapping::kSealed) ? Mapping::kSealed : 0;
  bool in_space = in_far_space(pointer(begin)), reserved = source.kind == Kind::kReserved;
  if (source.kind == Kind::kForeign) return 0;
  // Outside of the far space, addresses that are not far yet are the kernel's already.
  long r = in_space || !reserved ? give(begin, bytes, source, zeros) : 0;
  if (os::is_error(r)) return static_cast<int>(r);
  if (sealed) os::call(kMseal, begin, bytes, 0);
  if (!in_space) mappings().erase(it);
  else it->second = {.end = begin + bytes, .kind = Kind::kForeign, .flags = sealed};
  return 0;
}

int give_heap(uint64_t begin, uint64_t end, ZeroPages zeros) {
  long r = give(begin, end - begin, {.kind = Kind::kFar, .protection = PROT_READ | PROT_WRITE}, zeros);
  if (os::is_error(r)) return static_cast<int>(r);
  list(pointer(begin), end - begin, {.kind = Kind::kForeign});
  g_heap_was_given.store(true);
  return 0;
}

}  // namespace

bool give_to_kernel(void* address, size_t bytes, ZeroPages zeros) {
  if (size_t first = until_border(address, bytes)) {
    bool low = give_to_kernel(address, first, zeros);
    return give_to_kernel(static_cast<std::byte*>(address) + first, bytes - first, zeros) || low;
  }
  uint64_t begin = number(address), end = begin + bytes;
  bool is_range = is_aligned(begin, kPageSize) && is_aligned(bytes, kPageSize) && end > begin;
  if (!is_range || !may_be_listed(address)) return true;
  Locked locked;
  bool any = false, in_space = in_far_space(address);
  auto given = [&](int error) {
    any = true;
    return error;
  };
  auto heap = [&](uint64_t from, uint64_t to) { return given(give_heap(from, to, zeros)); };
  auto hole = [](uint64_t, uint64_t) { return 0; };
  auto gap = [&](uint64_t from, uint64_t to) { return in_space ? for_each_stretch(from, to, heap, hole) : given(0); };
  auto visit = [&](Mappings::iterator it) { return given(give_mapping(it, zeros)); };
  return for_each_mapping(begin, end, visit, gap) == 0 && any;
}

void take_back_from_kernel(void* address, size_t bytes) {
  if (!g_heap_was_given.load(std::memory_order_relaxed)) return;
  uint64_t begin = number(address), end = begin + bytes;
  Locked locked;
  auto visit = [](Mappings::iterator it) {
    std::byte* at = pointer(it->first);
    size_t size = it->second.end - it->first;
    mappings().erase(it);
    Status taken = mapping_pager()->addresses().adopt(at, size);
    if (taken.ok()) taken = mapping_pager()->addresses().commit(at, size);
    if (!taken.ok()) die("{}; the heap cannot have it back from the kernel", taken.text());
    return 0;
  };
  for_each_mapping(begin, end, visit, [](uint64_t, uint64_t) { return 0; });
}

}  // namespace farside::preload
