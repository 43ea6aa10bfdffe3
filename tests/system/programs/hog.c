// Allocates blocks of 1 MiB until malloc fails; then the other calls must fail, too, and the contents must be intact.
// What is freed then can be allocated again.
#include <pthread.h>

#include "far.h"

#define BLOCKS 4096

// What was freed can be used in other sizes, at once and by other threads.
static void use_again(size_t bytes) {
  void* again = malloc(bytes);
  CHECK(again);
  memset(again, 1, bytes);
  free(again);
}

static void* use_again_in_thread(void* bytes) {
  use_again((size_t)bytes);
  return NULL;
}

int main(void) {
  static unsigned char* blocks[BLOCKS];
  int count = 0;
  errno = 0;
  for (; count < BLOCKS; count++) {
    blocks[count] = malloc(MIB);
    if (!blocks[count]) break;
    fill(blocks[count], MIB, (uint32_t)count);
  }
  if (count == BLOCKS) return 3;  // there was no limit
  CHECK(errno == ENOMEM);
  errno = 0;
  CHECK(!calloc(64, MIB) && errno == ENOMEM);
  errno = 0;
  CHECK(!realloc(blocks[0], 256 * MIB) && errno == ENOMEM);
  CHECK(mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
        errno == ENOMEM);
  for (int i = 0; i < count; i++) CHECK(filled(blocks[i], MIB, (uint32_t)i));
  for (int i = 0; i < count; i++) free(blocks[i]);
  use_again((size_t)count * MIB * 3 / 4);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_again_in_thread, (void*)((size_t)count * MIB * 3 / 4)) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  puts("out of memory, contents intact");
  return 0;
}
