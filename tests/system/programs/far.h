// Helpers of the small programs of tests/system: memory that is far when they run under Farside, and checks that end
// the process.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)
#define BALLAST (32 * MIB)  // four times the near memory of the tests
#define MARGIN MIB          // around it, so that a window prefetched by a sweep contains no page that is to be evicted
#define SWEEP (12 * MIB)    // half as much again as the near memory: what was near before is not any more
#define MAX_SWEEPS 130

#define CHECK(condition)                                                                                        \
  do {                                                                                                          \
    if (!(condition)) {                                                                                         \
      dprintf(2, "%s:%d: failed: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
      _exit(99);                                                                                                \
    }                                                                                                           \
  } while (0)

static inline int under_farside(void) { return getenv("FARSIDE_RUN_FD") != NULL; }

// True if a page of the range is not near, according to bit 63 (present) of /proc/self/pagemap.
static inline int some_absent(const void* start, size_t bytes) {
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  int absent = 0;
  for (uintptr_t page = (uintptr_t)start / PAGE; page <= ((uintptr_t)start + bytes - 1) / PAGE && !absent; page++) {
    uint64_t entry;
    CHECK(pread(fd, &entry, sizeof entry, (off_t)(page * sizeof entry)) == sizeof entry);
    absent = !(entry >> 63);
  }
  close(fd);
  return absent;
}

// Accesses other memory until the range is no longer near. No effect without Farside.
static inline void push_far(const void* start, size_t bytes) {
  static volatile char* ballast;
  static size_t at;  // where the last sweep ended: the pages that follow are far
  if (!under_farside()) return;
  if (!ballast) {
    char* block = malloc(BALLAST + 2 * MARGIN);
    CHECK(block);
    ballast = block + MARGIN;
  }
  for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    for (size_t swept = 0; swept < SWEEP; swept += PAGE, at = (at + PAGE) % BALLAST) ballast[at]++;
    if (some_absent(start, bytes)) return;
  }
  dprintf(2, "%p stays near\n", (void*)start);
  _exit(98);
}

// A pattern that is different in every page.
static inline void fill(void* start, size_t bytes, uint32_t seed) {
  unsigned char* to = start;
  for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)((i * 2654435761u + seed * 40503u + (i >> 12) * 97u) >> 7);
}

static inline int filled(const void* start, size_t bytes, uint32_t seed) {
  const unsigned char* from = start;
  for (size_t i = 0; i < bytes; i++) {
    if (from[i] != (unsigned char)((i * 2654435761u + seed * 40503u + (i >> 12) * 97u) >> 7)) return 0;
  }
  return 1;
}

// A filled buffer whose pages are far.
static inline void* far_buffer(size_t bytes, uint32_t seed) {
  void* buffer = malloc(bytes);
  CHECK(buffer);
  fill(buffer, bytes, seed);
  push_far(buffer, bytes);
  return buffer;
}

// A copy of a string that is far. It is in the middle of a block, so that its page has no other data that is in use.
static inline char* far_string(const char* text) {
  size_t bytes = strlen(text) + 1;
  char* block = malloc(4 * PAGE + bytes);
  CHECK(block);
  char* copy = block + 2 * PAGE - bytes / 2;  // crosses a page if it can
  memcpy(copy, text, bytes);
  push_far(copy, bytes);
  return copy;
}

// A zeroed structure that is far.
static inline void* far_zero(size_t bytes) {
  void* p = far_buffer(bytes, 0);
  memset(p, 0, bytes);
  push_far(p, bytes);
  return p;
}

struct test_case {
  const char* name;
  void (*run)(void);
};

// Runs the case named by argv[1] and prints "NAME ok"; without an argument, lists the names.
static inline int run_case(int argc, char** argv, const struct test_case* cases) {
  for (const struct test_case* c = cases; c->name; c++) {
    if (argc < 2) {
      puts(c->name);
    } else if (!strcmp(argv[1], c->name)) {
      c->run();
      printf("%s ok\n", c->name);
      return fflush(stdout);
    }
  }
  return argc < 2 ? 0 : 2;
}
