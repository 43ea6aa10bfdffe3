#include "preload/heap/far_heap.h"

#include <jemalloc/jemalloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "preload/heap/kernel_memory.h"
#include "preload/heap/limits.h"
#include "preload/heap/near_stack.h"
#include "preload/heap/refusals.h"

// Read by jemalloc at its first use. One automatic arena (0, near); the far arenas are created explicitly. Freed memory
// is purged after one second, and at once when near memory has been full: see purge_at_once(). No separate arena for
// huge allocations, and no huge pages.
extern "C" __attribute__((visibility("hidden"))) const char* far_je_malloc_conf;
const char* far_je_malloc_conf =
    "narenas:1,retain:true,dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:false,oversize_threshold:0,"
    "metadata_thp:disabled,thp:never,abort_conf:false";

// The mappings of jemalloc's metadata: from the kernel directly, never far.
extern "C" {
void* far_je_near_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  long r = farside::os::mmap(address, bytes, protection, flags, fd, offset);
  if (r >= 0 || r < -4095) return reinterpret_cast<void*>(r);
  errno = static_cast<int>(-r);
  return MAP_FAILED;
}
static int with_errno(int r) {
  if (r >= 0) return r;
  errno = -r;
  return -1;
}
int far_je_near_munmap(void* address, size_t bytes) { return with_errno(farside::os::munmap(address, bytes)); }
int far_je_near_mprotect(void* address, size_t bytes, int p) {
  return with_errno(farside::os::mprotect(address, bytes, p));
}
int far_je_near_madvise(void* address, size_t bytes, int a) {
  return with_errno(farside::os::madvise(address, bytes, a));
}
}

namespace farside::preload {

__attribute__((tls_model("initial-exec"))) thread_local int t_heap = kUnbound;

namespace {

constexpr unsigned kMaxArenas = 16;

// Set once by enable_far_heap, before the program's main() and its threads.
pager::Pager* g_pager = nullptr;
unsigned g_arena_count = 0;
// The first one is made by enable_far_heap, each other one by the first thread that needs it: an arena touches 25
// pages.
constexpr unsigned kNotMade = 0, kBeingMade = UINT32_MAX;  // 0 is the near arena
std::atomic<unsigned> g_arenas[kMaxArenas];
std::atomic<unsigned> g_next_arena{0};
std::atomic<bool> g_purges_at_once{false};

// ---- Extent hooks. jemalloc calls them with its own locks held; they lock only the pager's
// (docs/internals/locking.md). ----

// The thread has reclaimed memory, and tries again.
__attribute__((tls_model("initial-exec"))) thread_local bool t_last_try = false;

bool commit_extent(std::byte* address, size_t bytes) {
  if (!is_within_limits(bytes, Growth::kData)) return false;
  Status committed = g_pager->addresses().commit(address, bytes);
  if (!committed.ok() && t_last_try) note_refusal(committed, bytes);
  if (committed.ok()) add_heap_bytes(static_cast<int64_t>(bytes));
  return committed.ok();
}

void* alloc_extent(void* wanted, size_t bytes, size_t alignment, bool* zero, bool* commit) {
  auto* address = static_cast<std::byte*>(wanted);
  if (address && !g_pager->addresses().reserve_at(address, bytes)) return nullptr;
  if (!address) address = g_pager->addresses().reserve(bytes, alignment);
  if (!address) return nullptr;
  if (*commit && !commit_extent(address, bytes)) {
    g_pager->addresses().release(address, bytes);
    return nullptr;
  }
  *zero = true;
  return address;
}

void* hook_alloc(extent_hooks_t*, void* wanted, size_t bytes, size_t alignment, bool* zero, bool* commit, unsigned) {
  return on_near_stack(*g_pager, [&] { return alloc_extent(wanted, bytes, alignment, zero, commit); });
}

// Not done (true): jemalloc keeps the addresses for reuse, and frees their memory by decommit.
bool hook_dalloc(extent_hooks_t*, void*, size_t, bool, unsigned) { return true; }

bool hook_commit(extent_hooks_t*, void* address, size_t, size_t offset, size_t bytes, unsigned) {
  return on_near_stack(*g_pager, [&] { return !commit_extent(static_cast<std::byte*>(address) + offset, bytes); });
}

bool hook_decommit(extent_hooks_t*, void* address, size_t, size_t offset, size_t bytes, unsigned) {
  return on_near_stack(*g_pager, [&] {
    take_back_from_kernel(static_cast<std::byte*>(address) + offset, bytes);
    g_pager->addresses().decommit_lazily(static_cast<std::byte*>(address) + offset, bytes);
    add_heap_bytes(-static_cast<int64_t>(bytes));
    return false;
  });
}

bool hook_purge(extent_hooks_t*, void* address, size_t, size_t offset, size_t bytes, unsigned) {
  return on_near_stack(*g_pager, [&] {
    take_back_from_kernel(static_cast<std::byte*>(address) + offset, bytes);
    g_pager->addresses().discard(static_cast<std::byte*>(address) + offset, bytes);
    return false;
  });
}

// Far space is one mapping, so extents can always be split and merged.
bool hook_split(extent_hooks_t*, void*, size_t, size_t, size_t, bool, unsigned) { return false; }
bool hook_merge(extent_hooks_t*, void*, size_t, void*, size_t, bool, unsigned) { return false; }

extent_hooks_t g_hooks = {hook_alloc, hook_dalloc, nullptr,    hook_commit, hook_decommit,
                          nullptr,    hook_purge,  hook_split, hook_merge};

Status make_arena(unsigned* index) {
  size_t size = sizeof *index;
  if (int error = far_je_mallctl("arenas.create", index, &size, nullptr, 0))
    return Status::error(error, "jemalloc cannot create an arena");
  // The hooks are replaced after the arena has been created, so its metadata is in jemalloc's default, near mappings.
  char name[48];
  snprintf(name, sizeof name, "arena.%u.extent_hooks", *index);
  extent_hooks_t* hooks = &g_hooks;
  if (int error = far_je_mallctl(name, nullptr, nullptr, &hooks, sizeof(void*)))
    return Status::error(error, "jemalloc refuses extent hooks");
  return {};
}

}  // namespace

Status enable_far_heap(pager::Pager* pager) {
  g_pager = pager;
  unsigned first;
  Status made = make_arena(&first);
  if (!made.ok()) return made;
  g_arenas[0].store(first);
  g_arena_count = std::clamp(static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN)), 1u, kMaxArenas);
  return {};
}

namespace {

void purge_arena_always(unsigned arena) {
  char name[48];
  snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", arena);
  ssize_t at_once = 0;
  far_je_mallctl(name, nullptr, nullptr, &at_once, sizeof at_once);
}

// The first one serves for one that is being made, or cannot be made.
unsigned take_arena(std::atomic<unsigned>& place) {
  unsigned found = kNotMade, made;
  if (!place.compare_exchange_strong(found, kBeingMade)) return found == kBeingMade ? g_arenas[0].load() : found;
  if (!make_arena(&made).ok()) return g_arenas[0].load();
  place.store(made);
  if (g_purges_at_once.load()) purge_arena_always(made);
  return made;
}

}  // namespace

bool bind_thread() {
  if (t_heap == kNear || g_arena_count == 0) return t_heap != kNear;
  t_heap = kNear;  // jemalloc may allocate for itself while it switches
  unsigned arena = take_arena(g_arenas[g_next_arena.fetch_add(1) % g_arena_count]);
  bool bound = far_je_mallctl("thread.arena", nullptr, nullptr, &arena, sizeof arena) == 0;
  t_heap = bound ? kBound : kUnbound;
  return true;
}

void purge_at_once() {
  bool is_far = g_arena_count > 0;  // the program's libraries allocate before
  if (is_far && !g_purges_at_once.load(std::memory_order_relaxed) && g_pager->frames().evicted() > 0) purge_always();
}

void purge_always() {
  if (g_purges_at_once.exchange(true)) return;
  for (const std::atomic<unsigned>& arena : g_arenas) {
    if (unsigned made = arena.load(); made != kNotMade && made != kBeingMade) purge_arena_always(made);
  }
}

bool begin_last_try(size_t bytes) {
  if (bytes > g_pager->space().bytes()) return false;
  far_je_mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
  far_je_mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: MALLCTL_ARENAS_ALL
  t_last_try = true;
  return true;
}

void end_last_try() { t_last_try = false; }

int near_flags() { return MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE; }

NearScope::NearScope() : before_(t_heap) { t_heap = kNear; }
NearScope::~NearScope() { t_heap = before_; }

}  // namespace farside::preload
