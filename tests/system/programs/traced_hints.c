// A program with hints: one before the line that faults, one that is never executed. The guards of farside.h find no
// far memory, because this program defines the library's functions itself, without effect.
#include <farside/farside.h>

#include "far.h"

struct farside_view farside_view;
volatile uintptr_t seen;

__attribute__((noinline)) void farside_hint_slow(const void* address, size_t bytes, unsigned options) {
  seen = (uintptr_t)address + bytes + options;
}

int main(int argc, char** argv) {
  (void)argv;
  size_t bytes = 32 * MIB, sum = 0;
  char* block = malloc(bytes);
  CHECK(block);
  fill(block, bytes, 1);
  for (size_t at = 0; at < bytes; at += PAGE) {
    farside_hint_read(block + at, 1);  // HINT: before
    sum += (unsigned char)block[at];   // FAULTS
  }
  if (argc > 100) farside_hint_write(block, bytes);  // HINT: unreached
  printf("%zu\n", sum);
  return 0;
}
