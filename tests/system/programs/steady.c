// Keeps a block of memory (argv[1] MiB) busy: fills it, prints "ready", then reads and compares it again and again.
// A wrong value ends it with status 99. It stops by itself after argv[2] rounds.
#include "far.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  size_t bytes = strtoul(argv[1], NULL, 10) * MIB;
  long rounds = atol(argv[2]);
  unsigned char* block = malloc(bytes);
  CHECK(block);
  fill(block, bytes, 1);
  puts("ready");
  fflush(stdout);
  for (long i = 0; i < rounds; i++) CHECK(filled(block, bytes, 1));
  puts("done");
  return 0;
}
