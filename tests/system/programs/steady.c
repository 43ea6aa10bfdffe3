// steady MIB ROUNDS [write]: fills a block of memory, prints "ready", then compares all of it in every round. With
// "write" every round begins with filling it again. A wrong value ends it with status 99.
#include "far.h"

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  size_t bytes = strtoul(argv[1], NULL, 10) * MIB;
  long rounds = atol(argv[2]);
  unsigned char* block = malloc(bytes);
  CHECK(block);
  fill(block, bytes, 1);
  puts("ready");
  fflush(stdout);
  for (long i = 0; i < rounds; i++) {
    if (argc == 4) fill(block, bytes, 1);
    CHECK(filled(block, bytes, 1));
  }
  puts("done");
  return 0;
}
