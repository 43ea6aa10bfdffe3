// A library whose segments are aligned to 2 MiB, as those of many Python wheels are: ld.so maps its file over an
// anonymous reservation. It also frees what the program has allocated, and the other way round.
#include <stdlib.h>
#include <string.h>

static const char text[] = "constant";
static int counter = 40;
static char zeros[200 * 1024];
static __thread int calls;

int aligned_count(void) {
  for (size_t i = 0; i < sizeof zeros; i += 4096) counter += zeros[i]++;
  calls++;
  return counter++ + (int)strlen(text);
}

char* aligned_exchange(char* mine) {
  char* copy = strdup(mine);
  free(mine);
  return realloc(copy, 1 << 20);
}
