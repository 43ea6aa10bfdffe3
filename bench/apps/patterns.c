// Patterns of accesses, whose counts of pages tests/counts bounds and `farside bench regret` compares.
// Usage: patterns PATTERN [MIB]: the memory in all; by default that which the bounds are for. Each prints a sum of what
// it read, which depends on the pattern and the size only.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPage = 4096, kBlock = 512, kBlockBytes = kBlock * kPage };
#define MIB ((size_t)1 << 20)

static uint64_t state = 88172645463325252ull, sum = 1;

static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static char* written(size_t bytes) {
  char* memory = aligned_alloc(kBlockBytes, (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  if (!memory) exit(2);
  for (size_t i = 0; i < bytes; i += 64) *(uint64_t*)(memory + i) = i;
  return memory;
}

static void read_at(const char* memory, size_t at) { sum = sum * 31 + (uint64_t)memory[at]; }

// Random reads of a set that may fit, beside a stream three times through the rest.
static void hot_set_of(size_t hot, size_t rest) {
  char *set = written(hot), *stream = written(rest);
  for (int pass = 0; pass < 3; pass++) {
    for (size_t i = 0; i < rest; i += kPage) {
      sum += stream[i];
      for (int k = 0; k < 100; k++) sum += set[next_random() % hot];
    }
  }
}
static void hot_set(size_t bytes) { hot_set_of(bytes * 90 / 390, bytes * 300 / 390); }
static void larger_hot_set(size_t bytes) { hot_set_of(bytes * 110 / 410, bytes * 300 / 410); }

// All pages of one block of 2 MiB, in random order, read and written.
static void sweep(char* block) {
  int order[kBlock];
  for (int i = 0; i < kBlock; i++) order[i] = i;
  for (int i = kBlock - 1; i > 0; i--) {
    int j = (int)(next_random() % (uint64_t)(i + 1)), other = order[i];
    order[i] = order[j];
    order[j] = other;
  }
  for (int i = 0; i < kBlock; i++) {
    uint64_t* word = (uint64_t*)(block + (size_t)order[i] * kPage);
    sum = sum * 31 + word[5];
    word[5] = sum;
  }
}

// As a collector of generations: sweeps of a small zone between single reads of a large one that was swept before.
static void zones(size_t bytes) {
  size_t all = bytes / kBlockBytes, old = all * 5 / 7, young = all - old, rounds = all * 15 / 7;
  char* memory = written(all * kBlockBytes);
  for (size_t b = 0; b < 2 * all; b++) sweep(memory + b % all * kBlockBytes);
  for (size_t round = 0; round < rounds; round++) {
    sweep(memory + (old + round % young) * kBlockBytes);
    for (int i = 0; i < 200; i++) sum += (uint64_t)memory[next_random() % (old * kBlock) * kPage];
  }
}

// Groups of 8 blocks, each group swept in turn: no stream, but each is used whole.
static void blocks(size_t bytes) {
  enum { kGroup = 8 };
  char* memory = written(bytes);
  for (size_t pass = 0; pass < 8; pass++) {
    for (size_t group = 0; group < bytes / kBlockBytes / kGroup; group++) {
      for (size_t b = 0; b < kGroup; b++) sweep(memory + (group * kGroup + (b * 5 + pass) % kGroup) * kBlockBytes);
    }
  }
}

// Ten times all pages, in an order that is no stream: one page in each pass is missed for each page that has no room.
static void loop(size_t bytes) {
  char* memory = written(bytes);
  for (int pass = 0; pass < 10; pass++) {
    for (size_t i = 0; i < bytes; i += kPage) read_at(memory, (i * 4097 * 17) % bytes);
  }
}

static void random_reads(size_t bytes) {
  char* memory = written(bytes);
  for (size_t i = 0; i < bytes / MIB * 1000; i++) read_at(memory, next_random() % bytes);
}

static void stream(size_t bytes) {
  char* memory = written(bytes);
  for (int pass = 0; pass < 3; pass++) {
    for (size_t i = 0; i < bytes; i += kPage) read_at(memory, i);
  }
}

// Every seventh page, seven times with another begin, and all that twice.
static void stride(size_t bytes) {
  enum { kStep = 7 };
  char* memory = written(bytes);
  for (size_t pass = 0; pass < 2 * kStep; pass++) {
    for (size_t i = pass % kStep * kPage; i < bytes; i += kStep * kPage) read_at(memory, i);
  }
}

// Reads and writes of pages by Zipf's law: as many of the pages 1, of 2 and 3, of 4 to 7, and so on; they are
// scattered.
static void zipf(size_t bytes) {
  size_t bits = 0, pages = bytes / kPage;
  while (((size_t)2 << bits) <= pages) bits++;
  char* memory = written(bytes);
  for (size_t i = 0; i < 40 * pages; i++) {
    size_t first = (size_t)1 << next_random() % bits, rank = first + next_random() % first;
    read_at(memory, rank * 65537 % pages * kPage);
    if (i % 8 == 0) memory[rank * 65537 % pages * kPage] = (char)i;
  }
}

// Seven phases; each uses a quarter of the pages at random, half of them those of the phase before.
static void phases(size_t bytes) {
  size_t pages = bytes / kPage;
  char* memory = written(bytes);
  for (size_t phase = 0; phase < 7; phase++) {
    for (size_t i = 0; i < 4 * pages; i++)
      read_at(memory, (phase * (pages / 8) + next_random() % (pages / 4)) % pages * kPage);
  }
}

// A matrix that is written by rows, transposed by eight columns at a time, and both added up: three phases that are
// done with half of the memory each.
static void transposed(size_t bytes) {
  enum { kColumns = 8 };
  size_t n = kColumns;
  while (2 * (n + kColumns) * (n + kColumns) * sizeof(uint64_t) <= bytes) n += kColumns;
  uint64_t *from = (uint64_t*)written(bytes / 2), *to = (uint64_t*)written(bytes / 2);
  for (size_t first = 0; first < n; first += kColumns) {
    for (size_t row = 0; row < n; row++) {
      for (size_t column = first; column < first + kColumns; column++) to[column * n + row] = from[row * n + column];
    }
  }
  for (int pass = 0; pass < 3; pass++) {
    for (size_t i = 0; i < n * n; i++) sum = sum * 31 + to[i];
  }
}

static const struct {
  const char* name;
  void (*run)(size_t bytes);
  size_t mib;  // by default
} kPatterns[] = {{"hot_set", hot_set, 390},
                 {"larger_hot_set", larger_hot_set, 410},
                 {"zones", zones, 280},
                 {"blocks", blocks, 128},
                 {"loop", loop, 120},
                 {"random", random_reads, 200},
                 {"stream", stream, 200},
                 {"stride", stride, 200},
                 {"zipf", zipf, 200},
                 {"phases", phases, 200},
                 {"transposed", transposed, 200}};

int main(int count, char** arguments) {
  for (size_t i = 0; count > 1 && i < sizeof kPatterns / sizeof *kPatterns; i++) {
    if (strcmp(arguments[1], kPatterns[i].name) != 0) continue;
    kPatterns[i].run((count > 2 ? strtoul(arguments[2], NULL, 10) : kPatterns[i].mib) * MIB);
    return printf("%016lx\n", sum) < 0;
  }
  fprintf(stderr, "usage: patterns PATTERN [MIB]\n");
  return 2;
}
