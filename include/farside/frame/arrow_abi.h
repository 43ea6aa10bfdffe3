/* The two structures of Apache Arrow's C data interface, by which columns are passed between libraries of one process.
 * Their layout is a published, frozen ABI: https://arrow.apache.org/docs/format/CDataInterface.html. Other headers may
 * define them too; all use the same guard. */
#ifndef FARSIDE_FRAME_ARROW_ABI_H
#define FARSIDE_FRAME_ARROW_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

/* A type. release is NULL once the structure was released or moved from. */
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

/* Data of that type. null_count is -1 where it was not counted. */
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif

#ifdef __cplusplus
}
#endif
#endif
