// The malloc family, with far memory.
#include <malloc.h>

#include "far.h"

static void aligned(void) {
  for (size_t alignment = 8; alignment <= 4 * MIB; alignment *= 2) {
    for (size_t bytes = 1; bytes <= 64 * 1024; bytes = bytes * 3 + 1) {
      void* p = NULL;
      CHECK(posix_memalign(&p, alignment, bytes) == 0);
      CHECK((uintptr_t)p % alignment == 0 && malloc_usable_size(p) >= bytes);
      fill(p, bytes, 3);
      void* q = memalign(alignment, bytes);
      CHECK(q && (uintptr_t)q % alignment == 0);
      void* r = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
      CHECK(r && (uintptr_t)r % alignment == 0);
      CHECK(filled(p, bytes, 3));
      free(p), free(q), free(r);
    }
  }
  void* p = (void*)1;
  CHECK(posix_memalign(&p, 3, 8) == EINVAL);
  CHECK(posix_memalign(&p, 4, 8) == EINVAL);
  void* v = valloc(100);
  CHECK(v && (uintptr_t)v % PAGE == 0);
  void* w = pvalloc(100);
  CHECK(w && (uintptr_t)w % PAGE == 0);
  free(v), free(w);
}

static void zeroed(void) {
  for (int round = 0; round < 3; round++) {
    unsigned char* p = malloc(16 * MIB);  // dirty memory that calloc may reuse
    CHECK(p);
    memset(p, 0xee, 16 * MIB);
    free(p);
    unsigned char* q = calloc(16, MIB);
    CHECK(q);
    for (size_t i = 0; i < 16 * MIB; i++) CHECK(q[i] == 0);
    free(q);
    unsigned char* small[1000];
    for (int i = 0; i < 1000; i++) {
      small[i] = calloc(1, 1000);
      for (int j = 0; j < 1000; j++) CHECK(small[i][j] == 0);
      memset(small[i], 0xdd, 1000);
    }
    for (int i = 0; i < 1000; i++) free(small[i]);
  }
}

static void overflow(void) {
  volatile size_t huge = SIZE_MAX / 2 + 2, largest = SIZE_MAX - 127;  // volatile: else the compiler warns
  errno = 0;
  CHECK(calloc(huge, 2) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(malloc(largest) == NULL && errno == ENOMEM);
  void* p = malloc(10);
  errno = 0;
  CHECK(reallocarray(p, huge, 4) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(realloc(p, largest) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(aligned_alloc(64, largest) == NULL && errno == ENOMEM);
  free(p);
}

static void resized(void) {
  size_t bytes = 100;
  unsigned char* p = malloc(bytes);
  fill(p, bytes, 9);
  for (; bytes < 48 * MIB; bytes = bytes * 7 / 4) {
    push_far(p, bytes);
    p = realloc(p, bytes * 7 / 4);
    CHECK(p && filled(p, bytes, 9));
    fill(p, bytes * 7 / 4, 9);
  }
  for (; bytes > 100; bytes /= 3) {
    p = realloc(p, bytes);
    CHECK(p && filled(p, bytes, 9));
  }
  p = reallocarray(p, 1000, 1000);
  CHECK(p && filled(p, bytes, 9));
  free(p);
  void* fresh = realloc(NULL, 50);
  CHECK(fresh);
  free(fresh);
  free(NULL);
}

// Allocates and frees blocks of many sizes in a fixed pseudo-random order, each with its own pattern.
static void churn(void) {
  enum { kBlocks = 4000, kSteps = 40000 };
  static struct {
    unsigned char* p;
    size_t bytes;
  } blocks[kBlocks];
  uint64_t state = 88172645463325252u;
  for (int step = 0; step < kSteps; step++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    uint32_t i = (uint32_t)(state % kBlocks);
    if (blocks[i].p) {
      CHECK(filled(blocks[i].p, blocks[i].bytes, i));
      free(blocks[i].p);
    }
    blocks[i].bytes = (state >> 20) % ((state >> 50) % 64 == 0 ? 300000 : 6000) + 1;
    blocks[i].p = malloc(blocks[i].bytes);
    CHECK(blocks[i].p && malloc_usable_size(blocks[i].p) >= blocks[i].bytes);
    fill(blocks[i].p, blocks[i].bytes, i);
  }
  for (uint32_t i = 0; i < kBlocks; i++) {
    if (blocks[i].p) CHECK(filled(blocks[i].p, blocks[i].bytes, i));
    free(blocks[i].p);
  }
}

// Other functions of libc that allocate and free memory.
static void libc_users(void) {
  char* text = NULL;
  char* source = far_string("a string that is far away");
  CHECK(asprintf(&text, "%s and %d", source, 7) > 0 && !strcmp(text, "a string that is far away and 7"));
  push_far(text, strlen(text));
  char* twice = strdup(text);
  CHECK(!strcmp(twice, text));
  char* line = NULL;
  size_t room = 0;
  FILE* file = fopen("/proc/self/status", "r");
  CHECK(file && getline(&line, &room, file) > 0 && !strncmp(line, "Name:", 5));
  fclose(file);
  char* folder = getcwd(NULL, 0);
  CHECK(folder);
  char* real = realpath("/proc/self", NULL);
  CHECK(real && !strncmp(real, "/proc/", 6));
  malloc_trim(0);
  free(text), free(twice), free(line), free(folder), free(real);
}

// Blocks of every size are aligned to 16.
static void small_blocks(void) {
  for (size_t bytes = 0; bytes < 300; bytes++) {
    char *p = malloc(bytes), *q = calloc(1, bytes), *r = realloc(NULL, bytes), *s = realloc(malloc(1000), bytes + 1);
    CHECK(((uintptr_t)p | (uintptr_t)q | (uintptr_t)r | (uintptr_t)s) % 16 == 0);
    free(p), free(q), free(r), free(s);
  }
}

#define REFUSED(call, error) CHECK((errno = 0, (call) == NULL) && errno == (error))

static void odd_arguments(void) {
  volatile size_t most = SIZE_MAX, half = SIZE_MAX / 2;
  REFUSED(pvalloc(most), ENOMEM);
  REFUSED(pvalloc(most - 100), ENOMEM);
  REFUSED(valloc(most - 5000), ENOMEM);
  REFUSED(malloc(half + 1), ENOMEM);
  REFUSED(calloc(half, 3), ENOMEM);
  REFUSED(memalign(half + 2, 100), EINVAL);
  REFUSED(memalign(half + 1, 100), ENOMEM);
  REFUSED(memalign(64, most - 200), ENOMEM);
  void* kept = &kept;
  CHECK(posix_memalign(&kept, 0, 8) == EINVAL && posix_memalign(&kept, 24, 8) == EINVAL);
  CHECK(posix_memalign(&kept, 64, most / 4) == ENOMEM && kept == &kept);
  errno = 7;
  void* odd[] = {memalign(0, 100), memalign(3, 100), memalign(48, 100), pvalloc(0), aligned_alloc(1, 100)};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    CHECK(odd[i] && (uintptr_t)odd[i] % (i == 2 ? 64 : 16) == 0);
    free(odd[i]);
  }
  CHECK(realloc(malloc(10), 0) == NULL && malloc_usable_size(NULL) == 0 && errno == 7);
}

static void statistics(void) {
  struct mallinfo2 before = mallinfo2();
  enum { kBlocks = 10000, kBytes = 1000 };
  static char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; i++) blocks[i] = malloc(kBytes);
  char* large = malloc(8 * MIB);
  struct mallinfo2 with = mallinfo2();
  CHECK(with.uordblks >= before.uordblks + kBlocks * kBytes && with.uordblks < before.uordblks + 2 * kBlocks * kBytes);
  CHECK(with.hblks == before.hblks + 1 && with.hblkhd >= before.hblkhd + 8 * MIB);
  CHECK(with.arena == with.uordblks + with.fordblks);
  for (int i = 0; i < kBlocks; i++) free(blocks[i]);
  free(large);
  struct mallinfo2 after = mallinfo2();
  CHECK(after.uordblks < with.uordblks - kBlocks * kBytes / 2 && after.hblks == before.hblks);
  char* text;
  size_t bytes;
  FILE* file = open_memstream(&text, &bytes);
  CHECK(malloc_info(1, file) == EINVAL && malloc_info(0, file) == 0 && fclose(file) == 0);
  CHECK(!strncmp(text, "<malloc version=\"1\">", 20) && strstr(text, "<total type=\"mmap\"") &&
        strstr(text, "</malloc>"));
  free(text);
  CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"aligned", aligned},
                                           {"zeroed", zeroed},
                                           {"overflow", overflow},
                                           {"resized", resized},
                                           {"churn", churn},
                                           {"libc_users", libc_users},
                                           {"small_blocks", small_blocks},
                                           {"odd_arguments", odd_arguments},
                                           {"statistics", statistics},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
