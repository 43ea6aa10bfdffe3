/* Farside's C interface: hints that announce a program's next access, far regions with a separate eviction policy, and
 * statistics of the process. Usable from C, C++ and every language with a foreign function interface.
 *
 *   farside_hint_read(item, sizeof *item);  // before the line that reads *item
 *   uint64_t sum = 0;
 *   for (size_t i = 0; i < count; i++) {
 *     farside_hint(&column[i], sizeof column[i], FARSIDE_READ | FARSIDE_SEQ | FARSIDE_AHEAD(32));
 *     sum += column[i];
 *   }
 *
 * Link with -lfarside (pkg-config: farside; CMake: find_package(farside) and farside::farside). Needs C11 or C++17, GCC
 * or Clang. A program that does not run under `farside run` works as well: hints do nothing, and regions are ordinary
 * memory.
 *
 * Hints never change what a program computes. Their cost on near memory, in x86-64 instructions at -O2 (GCC 12; measure
 * with `farside bench hints`):
 *
 *   read or write hint; the page has been used since it was fetched (write: and written)     15
 *   FARSIDE_SEQ, and the access does not begin the page                                      11
 *   the program does not run under Farside, or the memory is not far                          4
 *
 * A hint in far memory that was freed or never allocated is ignored and counted: farside_stats.hints_wild.
 *
 * Errors: functions return 0 or a negative errno value; errno itself is not used. Thread-safety: all functions may be
 * called concurrently, but calls that change the same region must not overlap. None may be called from a signal
 * handler.
 *
 * Source of the idea: Eden 3 (docs/references.md). Guide: docs/guide/hints.md. */
#ifndef FARSIDE_FARSIDE_H
#define FARSIDE_FARSIDE_H

#include <farside/version.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Hints ---- */

/* Options of farside_hint, combined by |:
 *   bit 0        write
 *   bit 1        sequential
 *   bits 2-3     priority
 *   bits 8-15    pages ahead
 *   bits 16-23   pages behind  */
#define FARSIDE_READ 0u
/* The access writes: the page is mapped writable, which saves the fault at its first write. */
#define FARSIDE_WRITE 1u
/* Accesses follow each other in memory. The page is looked up only where an access begins it or crosses into the next
 * one, so a hint in a loop costs less. */
#define FARSIDE_SEQ 2u
/* Eviction priority of the page, 0 to 3: 0 (default) is evicted last, 3 first. Used by the policy `priority`. */
#define FARSIDE_PRIORITY(p) (((unsigned)(p)&3u) << 2)
/* Also fetch up to 255 pages after the access, or before it. */
#define FARSIDE_AHEAD(pages) (((unsigned)(pages)&255u) << 8)
#define FARSIDE_BEHIND(pages) (((unsigned)(pages)&255u) << 16)

/* What the inline check reads. Filled in by Farside before main; all zero in a program that runs without it. Read-only
 * for programs. */
struct farside_view {
  uintptr_t begin; /* first address of far space */
  size_t bytes;
  const uint64_t* words; /* the page word of each 4 KiB page */
};
extern struct farside_view farside_view;

/* Does the slow path of a hint, without the inline check. C and C++ programs call the inline functions below; it is
 * public for other languages. Fetches at most 1024 pages of [address, address + bytes), and at most an eighth of the
 * budget, in requests of up to 65 pages; takes only free frames, and stops when there are none. Fetched pages of the
 * range are waited for, pages ahead and behind are not. */
void farside_hint_slow(const void* address, size_t bytes, unsigned options);

/* Announces that the next lines access [address, address + bytes). Absent pages are fetched now, together
 * and without page faults; in a fiber, other fibers run meanwhile. Any address is allowed. Returns after the inline
 * check if the page is near and hot, that is, used since it was fetched; the first hints after a fetch take the slow
 * path, which makes it hot. Cost: see the first comment. */
static inline void farside_hint(const void* address, size_t bytes, unsigned options) {
  uintptr_t offset = (uintptr_t)address - farside_view.begin;
  size_t in_page = offset & 4095u;
  if (offset >= farside_view.bytes) return;
  if ((options & FARSIDE_SEQ) && in_page >= bytes && in_page + bytes <= 4096u) return;
  if (in_page + bytes <= 4096u) {
    uint64_t word = __atomic_load_n(&farside_view.words[offset >> 12], __ATOMIC_RELAXED);
    unsigned wanted = FARSIDE_PAGE_NEAR_ | ((options & FARSIDE_WRITE) ? FARSIDE_PAGE_DIRTY_ : 0u);
    unsigned looked =
        (options & FARSIDE_WRITE) ? FARSIDE_PAGE_MASK_ | FARSIDE_PAGE_DIRTY_ : FARSIDE_PAGE_MASK_ & ~FARSIDE_PAGE_COW_;
    if ((word & looked) == wanted) return;
  }
  farside_hint_slow(address, bytes, options);
}
static inline void farside_hint_read(const void* address, size_t bytes) { farside_hint(address, bytes, FARSIDE_READ); }
static inline void farside_hint_write(void* address, size_t bytes) { farside_hint(address, bytes, FARSIDE_WRITE); }

/* ---- Regions ---- */

/* A far region: a range of far addresses whose pages are evicted by a separate policy. */
typedef struct farside_region farside_region;

/* Creates a region: reserves addresses for `capacity` bytes, rounded up to 4 KiB pages and to at least 64 KiB. The
 * first `bytes`, rounded up to pages, are usable and read as zero; the rest cannot be accessed and takes no memory.
 * policy: "2q", "fifo", "lru" or "priority"; NULL: the policy of the process. *region is set on success only. Errors:
 * -EINVAL (unknown policy, capacity 0, bytes > capacity), -ENOMEM (far memory or addresses are used up), -ENOSPC (64
 * regions with a policy exist). Cost: a few system calls. */
int farside_region_create(farside_region** region, size_t bytes, size_t capacity, const char* policy);
/* Returns the region's first byte. It does not change while the region exists. */
void* farside_region_data(const farside_region* region);
/* Returns the usable bytes of the region, a multiple of 4096. */
size_t farside_region_size(const farside_region* region);
/* Grows or shrinks the usable part to `bytes`, rounded up to pages. New bytes read as zero; the content of bytes that
 * are cut off is discarded. Errors: -EINVAL (more than the capacity), -ENOMEM; the region keeps its size then. */
int farside_region_resize(farside_region* region, size_t bytes);
/* Frees the region and its content. NULL is allowed. */
void farside_region_destroy(farside_region* region);

/* malloc, calloc, realloc and free for libraries that take an allocator by such functions, as NumPy does. A block of
 * 64 KiB or more is a region of its own with the policy (NULL: that of the process), a smaller one comes from malloc.
 * Where 64 regions with a policy exist, and for an unknown one, the block has the policy of the process. Blocks are
 * aligned to 64 bytes; the size given to farside_block_free is not used. NULL: far memory is used up. Any thread may
 * free a block. */
void* farside_block_malloc(const char* policy, size_t bytes);
void* farside_block_calloc(const char* policy, size_t count, size_t bytes);
void* farside_block_realloc(const char* policy, void* block, size_t bytes);
void farside_block_free(const char* policy, void* block, size_t bytes);

/* Internal, for farside_region_create: sets the policy of a range of pages; NULL removes it. */
int farside_region_set_policy_(const void* address, size_t bytes, const char* policy);

/* ---- The process ---- */

struct farside_stats {
  /* Now: near memory in use, the budget, and all memory that was touched and not freed, near or far. */
  uint64_t near_bytes, near_limit_bytes, heap_bytes;
  /* Accesses that found their page absent or write-protected. */
  uint64_t faults;
  /* Hints that found something to do; pages that they fetched; hints on far addresses that belong to no allocation. */
  uint64_t hints, hints_fetched, hints_wild;
};
/* Reads the statistics of the process into *stats. -ENOSYS: the program does not run under Farside, and *stats is all
 * zero. Cost: a sum over all threads; not for hot paths. */
int farside_get_stats(struct farside_stats* stats);

/* What far memory has cost the process since it began, in all threads together. */
struct farside_costs {
  /* Nanoseconds in page faults, without the kernel's delivery of the fault, and without waiting in hints. */
  uint64_t fault_ns;
  /* Faults that fetched their page, and those of the thread that has most of them. */
  uint64_t fetches, busiest_thread_fetches;
  /* Read from memory servers and written to them; fetches ahead and hints included. */
  uint64_t bytes_fetched, bytes_written;
};
/* Reads the costs of the process into *costs; a forked child begins with zeros. -ENOSYS: the program does not run under
 * Farside, and *costs is all zero. Cost: as farside_get_stats. */
int farside_get_costs(struct farside_costs* costs);

/* Sets the limit of near memory, 8 MiB or more, as `farside ctl --local` does from outside. Returns at once: a lower
 * limit has effect as pages are evicted. It replaces a share of the heap. Errors: -EINVAL (less than 8 MiB), -ENOSYS
 * (the program does not run under Farside). */
int farside_set_limit(uint64_t bytes);

/* Returns the version of the library that is loaded, comparable with FARSIDE_VERSION, which is that of this header. */
int farside_version(void);

#ifdef __cplusplus
}
#endif
#endif
