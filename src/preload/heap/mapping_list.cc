#include "preload/heap/mapping_list.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "preload/heap/refusals.h"
#include "preload/trace/trace.h"

namespace farside::preload {
namespace {

pager::Pager* g_pager = nullptr;
// Guards the list; held while mappings change, before the pager's own locks (docs/internals/locking.md).
Mutex g_mutex;
alignas(Mappings) char g_storage[sizeof(Mappings)];
// Some mapping lies outside of the far space. Until then calls for near memory take no lock.
std::atomic<bool> g_any_outside{false};
bool g_locks_future = false;  // mlockall(MCL_FUTURE)

bool is_border(uint64_t address) {
  uint64_t low = number(g_pager->space().base());
  return address == low || address == low + g_pager->space().bytes();
}

}  // namespace

// Not analyzed: the functions of the list are called with the lock held through callbacks, and around a fork.
Locked::Locked() NO_THREAD_SAFETY_ANALYSIS { g_mutex.lock(); }
Locked::~Locked() NO_THREAD_SAFETY_ANALYSIS { g_mutex.unlock(); }
void lock_mapping_list() NO_THREAD_SAFETY_ANALYSIS { g_mutex.lock(); }
void unlock_mapping_list() NO_THREAD_SAFETY_ANALYSIS { g_mutex.unlock(); }
bool try_lock_mapping_list() NO_THREAD_SAFETY_ANALYSIS { return g_mutex.try_lock(); }

void create_mapping_list(pager::Pager* pager) {
  new (g_storage) Mappings;
  g_pager = pager;
}

Mappings& mappings() { return *reinterpret_cast<Mappings*>(g_storage); }
pager::Pager* mapping_pager() { return g_pager; }
bool in_far_space(const void* address) { return g_pager && g_pager->table().in_space(number(address)); }
bool may_be_listed(const void* address) { return g_pager && (in_far_space(address) || g_any_outside.load()); }

size_t until_border(const void* address, size_t bytes) {
  if (!g_pager) return 0;
  uint64_t begin = number(address), end = begin + align_up(bytes, kPageSize);
  uint64_t low = number(g_pager->space().base()), high = low + g_pager->space().bytes();
  if (begin < low && end > low) return low - begin;
  return begin >= low && begin < high && end > high ? high - begin : 0;
}

const Mapping* listed_at(uint64_t address) {
  auto it = mappings().upper_bound(address);
  if (it == mappings().begin()) return nullptr;
  --it;
  return it->second.end > address ? &it->second : nullptr;
}

bool is_listed(uint64_t begin, uint64_t end) {
  auto it = mappings().lower_bound(end);
  return it != mappings().begin() && std::prev(it)->second.end > begin;
}

bool is_listed_as(uint64_t address, Kind kind) {
  const Mapping* mapping = listed_at(address);
  return mapping && mapping->kind == kind;
}

bool any_sealed(uint64_t begin, uint64_t end) {
  auto it = mappings().upper_bound(begin);
  if (it != mappings().begin() && std::prev(it)->second.end > begin) --it;
  for (; it != mappings().end() && it->first < end; ++it) {
    if (it->second.has(Mapping::kSealed)) return true;
  }
  return false;
}

bool is_heap(uint64_t address) { return g_pager->addresses().is_committed(pointer(address), kPageSize); }

int find_hole(uint64_t begin, uint64_t end) {
  auto none = [](auto...) { return 0; };
  auto gap = [&](uint64_t from, uint64_t to) {
    // Without effect on what is mapped.
    if (!in_far_space(pointer(from))) return static_cast<int>(os::call(SYS_msync, from, to - from, MS_ASYNC));
    return for_each_stretch(from, to, none, [](uint64_t, uint64_t) { return -ENOMEM; });
  };
  return for_each_mapping(begin, end, none, gap);
}

void split_at(uint64_t address) {
  auto it = mappings().upper_bound(address);
  if (it == mappings().begin()) return;
  --it;
  if (it->first == address || it->second.end <= address) return;
  Mapping rest = it->second;
  it->second.end = address;
  mappings().emplace(address, rest);
}

void join(uint64_t begin, uint64_t end) {
  auto it = mappings().lower_bound(begin);
  if (it != mappings().begin()) --it;
  while (it != mappings().end()) {
    auto next = std::next(it);
    if (next == mappings().end() || next->first > end) return;
    bool joins = it->second.end == next->first && it->second.is_same(next->second) && !is_border(next->first);
    if (!joins) {
      it = next;
      continue;
    }
    it->second.end = next->second.end;
    mappings().erase(next);
  }
}

namespace {

// The listed range without gaps around a mapping, at most to the next multiples of 1 GiB: what is likely to be
// committed later.
std::pair<uint64_t, uint64_t> surroundings(Mappings::iterator it) {
  uint64_t begin = it->first, end = it->second.end;
  uint64_t low = std::max(align_down(begin, kGiB), pager::PageTable::kWindowBytes), high = align_up(end, kGiB);
  for (auto at = it; at != mappings().begin() && begin > low;) {
    --at;
    if (at->second.end != begin) break;
    begin = at->first;
  }
  for (auto at = std::next(it); at != mappings().end() && at->first == end && end < high; ++at) end = at->second.end;
  return {std::max(begin, low), std::min(end, high)};
}

}  // namespace

int commit(Mappings::iterator it) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  bool outside = !in_far_space(address);
  if (is_lowest(address)) return -ENOSPC;
  if (outside) {
    auto [begin, end] = surroundings(it);
    Status adopted = g_pager->addresses().adopt(address, bytes, pointer(begin), pointer(end));
    if (!adopted.ok()) return -adopted.code();
  }
  Status s = g_pager->addresses().commit(address, bytes);
  if (!s.ok()) {
    note_refusal(s, bytes);
    if (outside) {
      g_pager->addresses().abandon(address, bytes);
      os::mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    return -ENOMEM;
  }
  it->second.kind = Kind::kFar;
  return 0;
}

Mappings::iterator list(std::byte* address, size_t bytes, const Mapping& attributes) {
  if (!in_far_space(address)) g_any_outside.store(true);
  auto it = mappings().insert_or_assign(number(address), attributes).first;
  it->second.end = number(address) + bytes;
  return it;
}

void restore(std::byte* address, size_t bytes, bool moved_away) {
  Status adopted =
      moved_away ? g_pager->addresses().adopt_unmapped(address, bytes) : g_pager->addresses().adopt(address, bytes);
  if (adopted.ok()) return g_pager->addresses().release(address, bytes);
  list(address, bytes, {.kind = Kind::kForeign});
}

namespace {

void drop(Mappings::iterator it, bool moved_away = false) {
  std::byte* address = pointer(it->first);
  size_t bytes = it->second.end - it->first;
  Kind kind = it->second.kind;
  mappings().erase(it);
  if (kind == Kind::kFar) g_pager->addresses().decommit(address, bytes);
  if (kind == Kind::kForeign) return restore(address, bytes, moved_away);
  if (in_far_space(address)) g_pager->addresses().release(address, bytes);
  else if (kind == Kind::kFar) g_pager->addresses().abandon(address, bytes);
}

}  // namespace

void remove(uint64_t begin, uint64_t end, bool moved_away) {
  auto visit = [&](Mappings::iterator it) {
    drop(it, moved_away);
    return 0;
  };
  for_each_mapping(begin, end, visit, [](uint64_t, uint64_t) { return 0; });
}

long enter(std::byte* address, size_t bytes, const Mapping& attributes) {
  auto it = list(address, bytes, attributes);
  it->second.kind = Kind::kReserved;
  if (attributes.protection != PROT_NONE) {
    int error = commit(it), protection = attributes.page_protection();
    if (!error && protection != (PROT_READ | PROT_WRITE))
      error = -g_pager->addresses().protect(address, bytes, protection).code();
    if (error) {
      drop(it);
      return error;
    }
  }
  join(number(address), number(address) + bytes);
  if (tracing()) trace_allocation(address, bytes);
  return reinterpret_cast<long>(address);
}

bool take_place(std::byte* address, size_t bytes) {
  remove(number(address), number(address) + bytes);
  return g_pager->addresses().reserve_at(address, bytes);
}

Mapping new_mapping(int protection) {
  constexpr int kKnown = PROT_READ | PROT_WRITE | PROT_EXEC;  // the kernel ignores other bits of mmap's argument
  return {.protection = static_cast<uint8_t>(protection & kKnown),
          .flags = g_locks_future ? Mapping::kLocked : uint16_t{0}};
}

void lock_future_mappings(bool lock) { g_locks_future = lock; }

long unmap_range(uint64_t begin, uint64_t end) {
  if (any_sealed(begin, end)) return -EPERM;
  remove(begin, end);
  return in_far_space(pointer(begin)) ? 0 : os::munmap(pointer(begin), end - begin);
}

namespace {

// Maps near memory where page numbers were not granted.
long near_instead(std::byte* address, size_t bytes, int protection, int flags) {
  int fixed = (flags & ~(MAP_FIXED_NOREPLACE | MAP_POPULATE)) | MAP_FIXED;
  return os::mmap(address, bytes, protection, fixed, -1, 0);
}

}  // namespace

long map_outside(std::byte* wanted, size_t bytes, int flags, const Mapping& attributes) {
  int protection = attributes.protection;
  long r = os::mmap(wanted, bytes, protection, (flags & ~MAP_POPULATE) | MAP_NORESERVE, -1, 0);
  if (os::is_error(r)) return r;
  std::byte* address = pointer(static_cast<uint64_t>(r));
  long entered = enter(address, bytes, attributes);
  if (!os::is_error(entered)) return entered;
  if (entered == -ENOSPC) return near_instead(address, bytes, protection, flags);
  // The server is full. What the program does not expect to be backed by memory is near.
  if (entered == -ENOMEM && (flags & MAP_NORESERVE)) return near_instead(address, bytes, protection, flags);
  os::munmap(address, bytes);
  return entered;
}

long map_far_at(std::byte* place, size_t bytes, int flags, const Mapping& attributes) {
  constexpr int kFree = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  long r = map_outside(place, bytes, flags | kFree, attributes);
  if (os::is_error(r)) return r;
  bool is_there = pointer(static_cast<uint64_t>(r)) == place;  // kernels before 4.17 take the address as a hint
  bool is_far = attributes.protection == PROT_NONE || is_listed_as(static_cast<uint64_t>(r), Kind::kFar);
  if (is_there && is_far) return r;
  unmap_range(static_cast<uint64_t>(r), static_cast<uint64_t>(r) + bytes);
  return -ENOSPC;
}

void set_protection(uint64_t begin, uint64_t bytes, int protection) {
  Status set = g_pager->addresses().protect(pointer(begin), bytes, protection);
  if (!set.ok()) die("internal error: cannot protect moved memory (error {})", set.code());
}

bool has_content(uint64_t page) { return !g_pager->table().word(page).is(pager::PageState::kUntouched); }

void copy_far(uint64_t to, uint64_t from, uint64_t bytes, const Mapping& source) {
  if (source.kind == Kind::kReserved || source.has(Mapping::kGuarded)) return;
  if (source.protection == PROT_NONE) set_protection(from, bytes, PROT_READ);
  for (uint64_t at = 0; at < bytes; at += kPageSize) {
    if (has_content(from + at)) memcpy(pointer(to + at), pointer(from + at), kPageSize);
  }
  if (source.protection == PROT_NONE) set_protection(from, bytes, PROT_NONE);
}

long copy_to_program(void* to, const void* from, size_t bytes) {
  iovec source = {const_cast<void*>(from), bytes}, target = {to, bytes};
  long copied = os::call(SYS_process_vm_writev, os::getpid(), &source, 1, &target, 1, 0);
  if (copied == -EPERM || copied == -ENOSYS) memcpy(to, from, bytes);  // a container forbids the call
  return copied == -EFAULT || (copied >= 0 && static_cast<size_t>(copied) < bytes) ? -EFAULT : 0;
}

}  // namespace farside::preload
