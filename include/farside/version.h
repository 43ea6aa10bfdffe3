/* The version of Farside's headers, and what their inline functions know of the library's memory.
 *
 * Versions below 1.0 are compatible within a minor version: a program that was compiled with 0.1.x works with every
 * 0.1.y, which the name of the library (libfarside.so.0.1) and the version of its symbols (FARSIDE_0.1) express. Under
 * `farside run` the preload library replaces these functions, whatever its version is. So each program and shared
 * object that includes Farside's headers compares the layout at load, and a process with a mismatch ends with a
 * message.
 *
 * Included by the other headers. */
#ifndef FARSIDE_VERSION_H
#define FARSIDE_VERSION_H

#include <stdint.h>

#define FARSIDE_VERSION_MAJOR 0
#define FARSIDE_VERSION_MINOR 1
#define FARSIDE_VERSION_PATCH 0
/* For the preprocessor: #if FARSIDE_VERSION >= FARSIDE_MAKE_VERSION(0, 1, 0). */
#define FARSIDE_MAKE_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define FARSIDE_VERSION FARSIDE_MAKE_VERSION(FARSIDE_VERSION_MAJOR, FARSIDE_VERSION_MINOR, FARSIDE_VERSION_PATCH)

/* Internal: bits of a page word. src/preload/program_api.cc asserts that they are those of src/pager/pages/page_word.h.
 */
#define FARSIDE_PAGE_COW_ 0x40u  /* write-protected by a fork */
#define FARSIDE_PAGE_MASK_ 0x67u /* state, hot, cow */
#define FARSIDE_PAGE_NEAR_ 0x24u /* near and hot */
#define FARSIDE_PAGE_DIRTY_ 0x8u /* mapped writable */
/* Internal: where the address and the number of its 64-byte line are in an owner. src/objects/ptr_word.h. */
#define FARSIDE_OWNER_ADDRESS_SHIFT_ 16
#define FARSIDE_OWNER_LINE_SHIFT_ 22

/* Internal: all of that in one number.
 *
 *    63   56 55   48 47        40 39           32 31   24 23   16 15    8 7     0
 *   +-------+-------+------------+---------------+-------+-------+-------+-------+
 *   | major | minor | line shift | address shift | dirty | near  | mask  | cow   |
 *   +-------+-------+------------+---------------+-------+-------+-------+-------+ */
#define FARSIDE_LAYOUT_                                                                       \
  ((uint64_t)FARSIDE_VERSION_MAJOR << 56 | (uint64_t)FARSIDE_VERSION_MINOR << 48 |            \
   (uint64_t)FARSIDE_OWNER_LINE_SHIFT_ << 40 | (uint64_t)FARSIDE_OWNER_ADDRESS_SHIFT_ << 32 | \
   (uint64_t)FARSIDE_PAGE_DIRTY_ << 24 | FARSIDE_PAGE_NEAR_ << 16 | FARSIDE_PAGE_MASK_ << 8 | FARSIDE_PAGE_COW_)

#ifdef __cplusplus
extern "C" {
#endif

/* Internal: ends the process with a message if the loaded library has another layout. Weak, since a program that uses
 * nothing of the library need not link it. */
void farside_check_layout_(uint64_t layout) __attribute__((weak));

/* Runs when the program or shared object is loaded, once for each of its sources that includes a header. */
__attribute__((constructor, unused)) static void farside_check_layout_at_load_(void) {
  if (farside_check_layout_) farside_check_layout_(FARSIDE_LAYOUT_);
}

#ifdef __cplusplus
}
#endif
#endif
