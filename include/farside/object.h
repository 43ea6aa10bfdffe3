/* Farside's C interface to far objects, on which <farside/ptr.hpp> and <farside/scope.hpp> are built. C++ programs use
 * those; this file is for bindings of other languages.
 *
 * A far object is reached through its owner: a 64-bit word anywhere in the program's memory that holds the object's
 * address. Farside may move an object and then rewrites the owner's word. It does not move an object while a scope is
 * open in which the object was dereferenced (docs/internals/object_paths.md).
 *
 *    63                                 16 15        8 7         0
 *   +-------------------------------------+-----------+-----------+   units: of 16 bytes; 0: more than 4080 bytes
 *   | address; lowest bit: being moved    | units     | slot      |   slot: the object's header in its segment
 *   +-------------------------------------+-----------+-----------+   all bits 0: no object
 *
 * In a program that does not run under `farside run`, objects are ordinary memory.
 *
 * Errors: functions return 0 (or a count) or a negative errno value. Thread-safety: several threads may dereference the
 * same owner at the same time; calls that change one owner (new, delete, move) must not overlap with others on it, and
 * accesses to the object itself are the program's to order. None may be called from a signal handler.
 *
 * Sources of the ideas: AIFM 4.2, 5.3 (pointers, scopes); Atlas 4.1 (two paths); docs/references.md. */
#ifndef FARSIDE_OBJECT_H
#define FARSIDE_OBJECT_H

#include <farside/scope_state.h>
#include <farside/version.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Scopes ---- */

extern uint64_t farside_epoch; /* a clock of the evacuator; never 0 */

/* Internal: the slow paths of the functions below, at the first scope of a thread or fiber, and at the end of an
 * outermost scope that holds segments. */
struct farside_scopes* farside_scopes_attach(void);
void farside_scopes_release(struct farside_scopes* scopes);

/* Begin and end a scope; scopes may be nested. Cost: a few plain stores. The evacuator orders them by membarrier(2). */
static inline struct farside_scopes* farside_scope_begin(void) {
  struct farside_scopes* scopes = farside_scopes_here;
  if (__builtin_expect(!scopes, 0)) scopes = farside_scopes_attach();
  if (scopes->depth++ == 0)
    __atomic_store_n(&scopes->epoch, __atomic_load_n(&farside_epoch, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
  __asm__ volatile("" ::: "memory");
  return scopes;
}
static inline void farside_scope_end(struct farside_scopes* scopes) {
  __asm__ volatile("" ::: "memory");
  if (--scopes->depth > 0) return;
  if (__builtin_expect(scopes->held != 0, 0)) farside_scopes_release(scopes);
  __atomic_store_n(&scopes->epoch, 0, __ATOMIC_RELEASE);
}

/* ---- Objects ---- */

/* Calls each(field, context) for every owner that is stored inside an object. */
typedef void farside_visit_fields(void* object, void (*each)(uint64_t* field, void* context), void* context);

/* A type of objects: one static variable for each. */
struct farside_object_type {
  size_t bytes;                /* at least 1 */
  size_t alignment;            /* a power of two, at most 64 */
  farside_visit_fields* visit; /* NULL: no owners inside */
  uint32_t id;                 /* 0; assigned by Farside at first use */
};

/* Options, combined by |: the access writes; the object is not used again soon, so its page is evicted before others;
 * only the object's address is needed, so nothing is fetched; for farside_object_new, that the scope was opened for
 * this call, and the structure of the object, 1 to 63. */
#define FARSIDE_OBJECT_WRITE 1u
#define FARSIDE_OBJECT_NON_TEMPORAL 2u
#define FARSIDE_OBJECT_UNFETCHED 4u
#define FARSIDE_OBJECT_OWN_SCOPE 8u
#define FARSIDE_OBJECT_IN(structure) ((structure) << 8)

/* What the inline part of a dereference reads: where the access bits are. Each segment, a page of objects, has one bit
 * for reading and one for writing for each 64-byte line (src/objects/segment.h). A set bit means that objects in the
 * line may be used without a call. Filled in by Farside before main; without Farside all bits are set. */
struct farside_object_view {
  uintptr_t access_bits; /* address of the read mask of page 0; the write mask follows it */
  uint64_t mask;         /* applied to the number of a line, gives the offset of its page's masks */
};
extern struct farside_object_view farside_object_view;

/* Creates an object of undefined content. *owner becomes its owner, *object its address. The caller has a scope open.
 * On failure both are unchanged. -ENOMEM (far memory is full), -EINVAL (alignment over 64, more than 127 types with
 * owners inside, no such structure). */
int farside_object_new(uint64_t* owner, struct farside_object_type* type, unsigned options, void** object);
/* Destroys the object and sets the owner to 0. Fetches nothing. */
void farside_object_delete(uint64_t* owner);
/* Makes `to` the owner of the object, and sets `from` to 0. `to` must own no object. Fetches nothing; while the object
 * is far it may take a table entry in near memory. */
void farside_object_move(uint64_t* to, uint64_t* from);
/* Internal: the slow path of farside_object_deref. Fetches the object if it is far. NULL: the owner has no object. */
void* farside_object_deref_slow(uint64_t* owner, struct farside_object_type* type, unsigned options);
/* Fetches the objects of `count` owners that are adjacent in memory, all of one type. Objects that are fetched with
 * their page are requested and not waited for. Objects that are fetched one by one have arrived when the call returns;
 * up to 64 of them, or 16 KiB, go into one request. Owners without an object are skipped. */
void farside_object_prefetch(uint64_t* owners, size_t count, struct farside_object_type* type);

/* Returns whether the object of an owner with this content may be used without a call: the access bit of its first line
 * is set. One bit is enough: an object of up to 64 bytes is in one line, and all bits of a longer one are set together.
 */
static inline int farside_object_is_accessible(uint64_t word, unsigned options) {
  uint64_t line = word >> FARSIDE_OWNER_LINE_SHIFT_;
  const uint64_t* bits = (const uint64_t*)(farside_object_view.access_bits + (line & farside_object_view.mask)) +
                         (options & FARSIDE_OBJECT_WRITE);
  return (int)((__atomic_load_n(bits, __ATOMIC_ACQUIRE) >> (line & 63)) & 1);
}
/* Returns the object's address, valid until the caller's outermost scope ends. The caller has a scope open. The page
 * may be evicted meanwhile; an access faults and fetches it at the same address. Cost: 10 instructions while the access
 * bit is set; otherwise a call, and a fetch if the object is far. With FARSIDE_OBJECT_UNFETCHED as a rule no fetch:
 * only if the object is being moved, because most of its page is unused. */
static inline void* farside_object_deref(uint64_t* owner, struct farside_object_type* type, unsigned options) {
  uint64_t word = __atomic_load_n(owner, __ATOMIC_RELAXED);
  if (__builtin_expect(farside_object_is_accessible(word, options), 1))
    return (void*)(word >> FARSIDE_OWNER_ADDRESS_SHIFT_);
  return farside_object_deref_slow(owner, type, options);
}

/* ---- Data structures ---- */

/* Objects of a data structure share pages with each other only. These pages can be evicted by a separate policy, and
 * their evictions can be queried. Objects of more than 4080 bytes take whole pages and belong to no structure.
 * Source of the idea: AIFM 4.2.3 and 5.1. */
struct farside_structure_options {
  size_t capacity;     /* bytes that its objects may take; addresses are reserved, memory is used by objects only */
  const char* policy;  /* "2q", "fifo", "lru" or "priority"; NULL: the policy of the process */
  int track_evictions; /* 1: record evictions for farside_structure_take_evicted */
};
/* Creates a data structure and returns its number, 1 to 63, for FARSIDE_OBJECT_IN. It exists as long as the process.
 * -EINVAL (capacity 0, unknown policy), -ENOMEM (addresses are used up), -ENOSPC (63 structures exist, or 64 regions
 * and structures with a policy). */
int farside_structure_create(const struct farside_structure_options* options);
/* Stores the addresses of owners whose objects have been evicted since the last call, and returns how many: up to
 * `max`, which must be at least 256. Call it until it returns 0. Best effort: an owner may have been moved or destroyed
 * since, so compare its address with those of your structure, under a lock of the program; if more than 4 MiB of pages
 * are evicted between two calls, the later ones are not recorded. Cost: reads the headers of the evicted pages from the
 * memory server, up to 64 pages in one request. Always 0 without Farside. -EINVAL: no such structure. */
ssize_t farside_structure_take_evicted(unsigned structure, uint64_t** owners, size_t max);

/* What an eviction handler returns. DELAYED: the object must stay near for now; it is asked again. */
#define FARSIDE_EVICTION_PERMITTED 0
#define FARSIDE_EVICTION_DELAYED 1
/* Called before an object leaves near memory, with its owner, its address, and its size rounded up to 16 bytes. What
 * the handler writes to the object leaves with it.
 *
 * Calls come one after the other, from a thread of Farside. Meanwhile other threads that dereference the object wait.
 * So the handler waits for nothing: for a lock that a thread may hold while it dereferences or creates objects, it
 * tries, and returns DELAYED if it fails. It is short, since no other object of the process leaves meanwhile, throws no
 * exception, and does not fork. It may use all memory and other far objects, dereference and move this owner too, and
 * delete the object; but not call functions on servers that follow owners of the structure. New objects fail at once
 * where there is no room. */
typedef int farside_eviction_handler(uint64_t* owner, void* object, size_t bytes, void* context);
/* Sets the eviction handler of a structure that has had no object yet, or replaces it. Since then objects leave only
 * after a call; one that moves before it leaves, or another object of its page is delayed for long, is asked for again.
 * Objects that are far come back one by one. The owners of the structure's objects must not be inside far objects
 * (farside_object_new returns -EINVAL; one that is moved there keeps its object near). While many objects are delayed,
 * near memory may exceed its limit. NULL removes the handler, and objects leave without calls; when the function
 * returns, none is in progress. It must not be called by the handler. Thread-safe. -EINVAL: no such structure, or it
 * tracks evictions. -EBUSY: it has had objects. */
int farside_structure_on_evict(unsigned structure, farside_eviction_handler* handler, void* context);

/* Stops moves: until farside_object_permit_moves() no object of these structures is moved: bit n stands for structure
 * n, bit 0 for objects of none. For calls of functions that follow owners (<farside/offload.h>), one after the other.
 * The caller uses objects of these structures where they are. Other threads that need one which would be moved wait, so
 * meanwhile the caller must not wait for them: it takes no lock that they may hold, stops all structures that it uses
 * by one call, and ends soon, since no memory of dead objects is made free. It has no scope open, here and when it
 * permits moves, which the same thread or fiber does. *stopped: those structures that were not stopped by the caller
 * before, to be permitted. Waits until moves in progress have ended. -EINVAL: no such structure. -EDEADLK: a scope is
 * open. Cost: 35 ns for each structure, both together. */
int farside_object_stop_moves(uint64_t structures, uint64_t* stopped);
void farside_object_permit_moves(uint64_t stopped);

/* ---- Statistics ---- */

struct farside_object_stats {
  /* Now: objects alive and their bytes, those of more than 4080 bytes not included. */
  uint64_t objects, object_bytes;
  /* Now: pages that hold objects; those of them whose objects are fetched one by one. */
  uint64_t segments, segments_object_path;
  /* So far: objects that were fetched one by one; objects that the evacuator moved; pages that it emptied. */
  uint64_t taken, moved, segments_freed;
};
/* Reads the statistics of far objects into *stats. -ENOSYS: the program does not run under Farside, and *stats is all
 * zero. */
int farside_get_object_stats(struct farside_object_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
