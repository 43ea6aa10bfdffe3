/* Farside's interface for programs: hints that tell a code line's next access, and far regions with a policy of their
 * own. Plain C, usable from any language with a foreign function interface.
 *
 *   #include <farside/farside.h>
 *   farside_hint_read(item, sizeof *item);                                   // before the line that reads it
 *   farside_hint(&column[i], 8, FARSIDE_READ | FARSIDE_SEQ | FARSIDE_AHEAD(32));
 *
 * Link with -lfarside (pkg-config farside, or find_package(farside) and farside::farside). A program that does not run
 * under `farside run` works as before: every hint returns after four instructions, and regions are ordinary memory.
 *
 * Hints never change what a program computes. A hint on memory that is not far, was freed, or never existed is ignored
 * and counted (farside_stats.hints_wild). Where the idea comes from: Eden (NSDI'25), section 3.
 *
 * Functions return 0, or a negative errno value; errno itself is not used. All are thread-safe; none may be called from
 * a signal handler of the program. */
#ifndef FARSIDE_FARSIDE_H
#define FARSIDE_FARSIDE_H

#include <stddef.h>
#include <stdint.h>

#define FARSIDE_VERSION_MAJOR 0
#define FARSIDE_VERSION_MINOR 1
#define FARSIDE_VERSION_PATCH 0
/* Compare with FARSIDE_MAKE_VERSION(major, minor, patch) in the preprocessor. */
#define FARSIDE_MAKE_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define FARSIDE_VERSION FARSIDE_MAKE_VERSION(FARSIDE_VERSION_MAJOR, FARSIDE_VERSION_MINOR, FARSIDE_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Hints ---- */

/* Options of farside_hint, or'ed together:
 *   bit 0        write
 *   bit 1        seq
 *   bits 2-3     priority
 *   bits 8-15    pages ahead
 *   bits 16-23   pages behind  */
#define FARSIDE_READ 0u
#define FARSIDE_WRITE 1u /* the access writes */
#define FARSIDE_SEQ                                                  \
  2u /* accesses follow each other in memory: looks at the page only \
        where one begins, so a hint in a loop costs two instructions */
#define FARSIDE_PRIORITY(p)                                                                                          \
  (((unsigned)(p)&3u) << 2)                                  /* 0 (default) stays longest .. 3 leaves first; for the \
                                                                policies `priority` and any region that uses it */
#define FARSIDE_AHEAD(pages) (((unsigned)(pages)&255u) << 8) /* fetch up to 255 pages after it, too */
#define FARSIDE_BEHIND(pages) (((unsigned)(pages)&255u) << 16)

/* What the inline guards look at. Filled by Farside before main; all zero in a program that runs without it. */
struct farside_view {
  uintptr_t begin; /* far memory's addresses */
  size_t bytes;
  const uint64_t* words; /* one word a page; see src/pager/page_word.h */
};
extern struct farside_view farside_view;

/* The part of a hint that does something. Use the inline functions below. */
void farside_hint_slow(const void* address, size_t bytes, unsigned options);

/* Bits of a page word, asserted to be those of src/pager/page_word.h. */
#define FARSIDE_PAGE_MASK_ 0x67u /* state, hot, cow */
#define FARSIDE_PAGE_NEAR_ 0x24u /* near and hot */
#define FARSIDE_PAGE_DIRTY_ 0x8u

/* Says that the next lines use bytes [address, address + bytes): they are fetched now, in one request. In a fiber,
 * others run meanwhile. Nothing happens, in fifteen instructions, when the page is near already. */
static inline void farside_hint(const void* address, size_t bytes, unsigned options) {
  uintptr_t offset = (uintptr_t)address - farside_view.begin;
  size_t in_page = offset & 4095u;
  if (offset >= farside_view.bytes) return;
  if ((options & FARSIDE_SEQ) && in_page >= bytes && in_page + bytes <= 4096u) return;
  if (in_page + bytes <= 4096u) {
    uint64_t word = __atomic_load_n(&farside_view.words[offset >> 12], __ATOMIC_RELAXED);
    unsigned wanted = FARSIDE_PAGE_NEAR_ | ((options & FARSIDE_WRITE) ? FARSIDE_PAGE_DIRTY_ : 0u);
    unsigned looked =
        (options & FARSIDE_WRITE) ? FARSIDE_PAGE_MASK_ | FARSIDE_PAGE_DIRTY_ : FARSIDE_PAGE_MASK_ & ~0x40u;
    if ((word & looked) == wanted) return;
  }
  farside_hint_slow(address, bytes, options);
}
static inline void farside_hint_read(const void* address, size_t bytes) { farside_hint(address, bytes, FARSIDE_READ); }
static inline void farside_hint_write(void* address, size_t bytes) { farside_hint(address, bytes, FARSIDE_WRITE); }

/* ---- Regions ---- */

/* A far region: addresses of its own, whose pages leave by a policy of their own. Opaque. */
typedef struct farside_region farside_region;

/* Reserves `capacity` bytes (rounded up to 4 KiB pages) of which the first `bytes` are usable and read as zero.
 * policy: "fifo", "second-chance", "lru" or "priority"; NULL: the process's. *region is set on success only. -ENOMEM
 * (far memory or addresses are used up), -EINVAL (unknown policy, no capacity, bytes > capacity), -ENOSPC (64 regions
 * exist). */
int farside_region_create(farside_region** region, size_t bytes, size_t capacity, const char* policy);
/* First byte; never moves. */
void* farside_region_data(const farside_region* region);
size_t farside_region_size(const farside_region* region);
/* Grows or shrinks within the capacity: new bytes read as zero, bytes cut off are discarded. -EINVAL (beyond the
 * capacity), -ENOMEM. */
int farside_region_resize(farside_region* region, size_t bytes);
void farside_region_destroy(farside_region* region);

/* Gives the pages of a region their policy, or takes it back (NULL). Use farside_region_create. */
int farside_region_set_policy_(const void* address, size_t bytes, const char* policy);

/* ---- The process ---- */

struct farside_stats {
  uint64_t near_bytes, near_limit_bytes, heap_bytes; /* right now; heap_bytes: all that was touched, near or far */
  uint64_t faults;                                   /* accesses that found their page absent or write-protected */
  uint64_t hints, hints_fetched, hints_wild;         /* calls that got past the inline guard; of these, pages fetched;
                                                        and calls on memory that is not the program's */
};
/* -ENOSYS: the program does not run under Farside; *stats is zeros. */
int farside_get_stats(struct farside_stats* stats);

/* The version of the library that runs, as FARSIDE_VERSION. */
int farside_version(void);

#ifdef __cplusplus
}
#endif
#endif
