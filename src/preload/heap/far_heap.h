// The heap of an unmodified program: jemalloc, with extents in far space. jemalloc keeps its metadata outside the
// blocks, so malloc and free access no far page. Arena 0 is near: it serves the start of the process, jemalloc itself,
// and the few allocations that must be near (NearScope). Each thread is bound to one of the far arenas at its first
// allocation after enable_far_heap. Thread-safe; not async-signal-safe, as malloc.
#pragma once
#include <cstddef>

#include "pager/pager.h"

namespace farside::preload {

// Creates the far arenas. Before this, and if it fails, all memory is near.
Status enable_far_heap(pager::Pager* pager);

// While one exists, allocations of this thread are near. For memory that the kernel, a thread of Farside, or a process
// without Farside's handlers reads (file actions of posix_spawn).
class NearScope {
 public:
  NearScope();
  ~NearScope();
  NearScope(const NearScope&) = delete;
  NearScope& operator=(const NearScope&) = delete;

 private:
  int before_;
};

// The renamed jemalloc (see jemalloc_names.txt).
extern "C" {
void* far_je_malloc(size_t);
void* far_je_calloc(size_t, size_t);
void* far_je_realloc(void*, size_t);
void far_je_free(void*);
int far_je_posix_memalign(void**, size_t, size_t);
void* far_je_aligned_alloc(size_t, size_t);
size_t far_je_malloc_usable_size(void*);
void* far_je_mallocx(size_t, int);
void* far_je_rallocx(void*, size_t, int);
size_t far_je_xallocx(void*, size_t, size_t, int);
size_t far_je_sallocx(const void*, int);
void far_je_dallocx(void*, int);
void far_je_sdallocx(void*, size_t, int);
size_t far_je_nallocx(size_t, int);
int far_je_mallctl(const char*, void*, size_t*, void*, size_t);
int far_je_mallctlnametomib(const char*, size_t*, size_t*);
int far_je_mallctlbymib(const size_t*, size_t, void*, size_t*, void*, size_t);
void far_je_malloc_stats_print(void (*)(void*, const char*), void*, const char*);
}

// How this thread's allocations are served. Read at every malloc: a thread-local load and a comparison.
enum ThreadHeap : int { kUnbound = 0, kBound = 1, kNear = 2 };
extern __attribute__((tls_model("initial-exec"))) thread_local int t_heap;
// Binds an unbound thread, if far arenas exist. Returns false if the allocation must be near.
bool bind_thread();
inline bool allocate_far() { return __builtin_expect(t_heap == kBound, 1) || bind_thread(); }

// Called at large allocations. When near memory was full for the first time, purges what the program has freed, and
// makes jemalloc purge at once from then on: otherwise freed memory is evicted and fetched again, although its
// content is not needed. Purged pages keep their frames while these are not needed (Pager::decommit_lazily).
void purge_at_once();
// Freed memory is purged at once from now on.
void purge_always();
inline constexpr size_t kLargeBytes = 16 * 1024;

// For an allocation that failed, as on a full server: returns memory that the program has freed, and that jemalloc
// keeps for reuse in pieces that may be too small or in another arena, to the memory server. False: the far space could
// never hold so many bytes. Until end_last_try() a failure of this thread is final: it is reported.
bool begin_last_try(size_t bytes);
void end_last_try();

// mallocx flags for the near arena.
int near_flags();

}  // namespace farside::preload
