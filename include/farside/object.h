/* The C side of far objects: what <farside/ptr.hpp> and <farside/scope.hpp> are made of. Programs use those; this file
 * is for other languages' bindings and for readers.
 *
 * A far object is reached through its owner: a 64-bit word somewhere in memory, at an address of its own, that names
 * the object's place. Farside may move an object and then rewrites its owner's word, never while a scope is open that
 * was open when the object was reached (AIFM 4.2; Atlas 4.2; docs/internals/object_paths.md).
 *
 *    63                                16 15        8 7         0
 *   +------------------------------------+-----------+-----------+
 *   | address; its lowest bit: on the way| units     | slot      |   units of 16 bytes; 0 for objects of more than a
 * page
 *   +------------------------------------+-----------+-----------+
 *
 * A program that does not run under `farside run` gets ordinary memory from the same functions.
 * Functions are thread-safe, as far as two threads do not change one owner at a time; none may be called from a signal
 * handler. */
#ifndef FARSIDE_OBJECT_H
#define FARSIDE_OBJECT_H

#include <farside/farside.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Scopes ---- */

/* One line of execution's scopes: a thread's, or a fiber's. Written by that thread alone, read by the evacuator. */
struct farside_scopes {
  uint64_t epoch; /* when its outermost scope began; 0: none is open */
  uint32_t depth; /* scopes open, one inside the other */
  uint32_t held;  /* segments that must not be emptied before the outermost one ends */
};
extern __thread struct farside_scopes* farside_scopes_here __attribute__((tls_model("initial-exec")));
extern uint64_t farside_epoch; /* never 0 */

struct farside_scopes* farside_scopes_attach(void); /* at the first scope of a thread or fiber */
void farside_scopes_release(struct farside_scopes* scopes);

/* Costs a few plain stores; the evacuator pays for the ordering (membarrier). */
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

/* Calls each(field, context) for every owner inside an object. */
typedef void farside_visit_fields(void* object, void (*each)(uint64_t* field, void* context), void* context);

/* What Farside knows of a kind of objects. One static variable per kind; `id` is filled in at first use. */
struct farside_object_type {
  size_t bytes; /* 1 and more */
  size_t alignment;
  farside_visit_fields* visit; /* NULL: no owners inside */
  uint32_t id;
};

/* Options, or'ed together. */
#define FARSIDE_OBJECT_WRITE 1u                         /* the access writes */
#define FARSIDE_OBJECT_NON_TEMPORAL 2u                  /* it will not be used again soon: it is to displace nothing */
#define FARSIDE_OBJECT_IN(structure) ((structure) << 8) /* for farside_object_new: the data structure it belongs to */

/* The licences to use an object at once: a bit for each 64-byte line of a near segment (src/objects/segment.h). Filled
 * by Farside before main; without it, every licence is there. */
struct farside_object_view {
  uintptr_t access_bits;
  uint64_t mask;
};
extern struct farside_object_view farside_object_view;

/* Creates an object of undefined content, reached through *owner; *object is its address. The caller is in a scope.
 * -ENOMEM (far memory is full), -EINVAL (alignment over 64, more than 127 types with owners inside, no such
 * structure). */
int farside_object_new(uint64_t* owner, struct farside_object_type* type, unsigned options, void** object);
/* Ends the object and sets the owner to 0. Fetches nothing. */
void farside_object_delete(uint64_t* owner);
/* The object is reached through `to` from now on, and `from` is 0. */
void farside_object_move(uint64_t* to, uint64_t* from);
/* What farside_object_deref does where no licence is there. */
void* farside_object_deref_slow(uint64_t* owner, struct farside_object_type* type, unsigned options);
/* Brings near what `count` owners in a row name, objects of one type. What comes as a page is asked for and not waited
 * for; what comes one by one comes before the call returns, in one request for every 64 objects or 16 KiB. */
void farside_object_prefetch(uint64_t* owners, size_t count, struct farside_object_type* type);

/* Whether the object that an owner's word names may be used at once. */
static inline int farside_object_is_accessible(uint64_t word, unsigned options) {
  uint64_t line = word >> 22;
  const uint64_t* card = (const uint64_t*)(farside_object_view.access_bits + (line & farside_object_view.mask)) +
                         (options & FARSIDE_OBJECT_WRITE);
  return (int)((__atomic_load_n(card, __ATOMIC_ACQUIRE) >> (line & 63)) & 1);
}
/* The object's address, which stays valid until the caller's outermost scope ends. 10 instructions when it is near. */
static inline void* farside_object_deref(uint64_t* owner, struct farside_object_type* type, unsigned options) {
  uint64_t word = __atomic_load_n(owner, __ATOMIC_RELAXED);
  if (__builtin_expect(farside_object_is_accessible(word, options), 1)) return (void*)(word >> 16);
  return farside_object_deref_slow(owner, type, options);
}

/* ---- Data structures ---- */

/* Objects of a data structure lie on pages of their own, which leave by a policy of their own, and of which the program
 * can learn that they have left (AIFM 4.2.3 and 5.1, with the handler turned round: docs/decisions/0014). Objects of
 * more than 4080 bytes belong to none. */
struct farside_structure_options {
  size_t capacity;    /* bytes of far addresses that its objects may take; no memory is used before there are objects */
  const char* policy; /* "fifo", "second-chance", "lru", "priority"; NULL: the process's */
  int track_evictions; /* 1: farside_structure_take_evicted is going to ask */
};
/* 1 to 63, for FARSIDE_OBJECT_IN; it exists as long as the process. -EINVAL (no capacity, unknown policy), -ENOMEM
 * (addresses are used up), -ENOSPC (63 exist, or 64 regions). */
int farside_structure_create(const struct farside_structure_options* options);
/* Owners of objects whose pages have left near memory since the last call, at most `max` of them (256 and more).
 * Advice: an owner may have ended or been moved meanwhile, so compare its address with those that your structure has,
 * under your own lock; where more than 4 MiB leave between two calls, the later ones are not told. Reads the owners'
 * addresses from the far side, many in one request. Always 0 natively. */
ssize_t farside_structure_take_evicted(unsigned structure, uint64_t** owners, size_t max);

/* ---- Statistics ---- */

struct farside_object_stats {
  uint64_t objects, object_bytes;          /* alive now, those of more than a page left out */
  uint64_t segments, segments_object_path; /* pages that hold objects; of these, those whose objects come one by one */
  uint64_t taken, moved, segments_freed;   /* objects that came alone; that the evacuator moved; pages emptied */
};
/* -ENOSYS: the program does not run under Farside; *stats is zeros. */
int farside_get_object_stats(struct farside_object_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
