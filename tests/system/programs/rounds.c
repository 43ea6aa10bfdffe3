// rounds PAGES [ROUNDS]: writes PAGES pages, then reads a word of each in every round. The number of fetches is thus
// known for every share of near memory.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc < 2) return 0;  // lists its cases: none
  size_t pages = strtoul(argv[1], NULL, 10), rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
  volatile char* block = malloc(pages * 4096);
  if (!block) return 1;
  unsigned long sum = 0;
  for (size_t page = 0; page < pages; page++) block[page * 4096] = (char)page;
  for (size_t round = 0; round < rounds; round++) {
    for (size_t page = 0; page < pages; page++) sum += (unsigned char)block[page * 4096];
  }
  printf("%lu\n", sum);
  return 0;
}
