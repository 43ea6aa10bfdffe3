// Patterns of accesses whose counts of pages are bounded by counts.py. Usage: patterns PATTERN. Each prints a sum
// of what it read, which depends on nothing but the pattern.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPage = 4096, kBlock = 512 };
#define MIB ((size_t)1 << 20)

static uint64_t state = 88172645463325252ull, sum = 1;

static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static char* written(size_t bytes) {
  char* memory = aligned_alloc(2 * MIB, bytes);
  if (!memory) exit(2);
  for (size_t i = 0; i < bytes; i += 64) *(uint64_t*)(memory + i) = i;
  return memory;
}

// Random reads of a set that nearly fits, beside a stream of 300 MiB, three times.
static void hot_set(size_t hot) {
  char *set = written(hot), *stream = written(300 * MIB);
  for (int pass = 0; pass < 3; pass++) {
    for (size_t i = 0; i < 300 * MIB; i += kPage) {
      sum += stream[i];
      for (int k = 0; k < 100; k++) sum += set[next_random() % hot];
    }
  }
}

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
static void zones(void) {
  enum { kOld = 100, kYoung = 40 };
  char* memory = written((kOld + kYoung) * 2 * MIB);
  for (int b = 0; b < 2 * (kOld + kYoung); b++) sweep(memory + (size_t)(b % (kOld + kYoung)) * 2 * MIB);
  for (int round = 0; round < 300; round++) {
    sweep(memory + (size_t)(kOld + round % kYoung) * 2 * MIB);
    for (int i = 0; i < 200; i++) sum += (uint64_t)memory[next_random() % (kOld * 512) * kPage];
  }
}

// Blocks of 16 MiB, each swept in turn, in all 128 MiB: no stream, but each is used whole.
static void blocks(void) {
  char* memory = written(128 * MIB);
  for (int pass = 0; pass < 8; pass++) {
    for (size_t block = 0; block < 8; block++) {
      for (size_t b = 0; b < 8; b++) sweep(memory + (block * 8 + (b * 5 + (size_t)pass) % 8) * 2 * MIB);
    }
  }
}

// A loop over slightly more than near memory: one page in each pass is missed for each page that has no room.
static void loop(void) {
  char* memory = written(120 * MIB);
  for (int pass = 0; pass < 10; pass++) {
    for (size_t i = 0; i < 120 * MIB; i += kPage) sum = sum * 31 + (uint64_t)memory[(i * 4097 * 17) % (120 * MIB)];
  }
}

static void random_reads(void) {
  char* memory = written(200 * MIB);
  for (int i = 0; i < 200000; i++) sum = sum * 31 + (uint64_t)memory[next_random() % (200 * MIB)];
}

static void stream_of_reads(void) {
  char* memory = written(200 * MIB);
  for (int pass = 0; pass < 3; pass++) {
    for (size_t i = 0; i < 200 * MIB; i += kPage) sum = sum * 31 + (uint64_t)memory[i];
  }
}

int main(int count, char** arguments) {
  const char* pattern = count == 2 ? arguments[1] : "";
  if (strcmp(pattern, "hot_set_that_fits") == 0) hot_set(90 * MIB);
  else if (strcmp(pattern, "hot_set_beyond") == 0) hot_set(110 * MIB);
  else if (strcmp(pattern, "zones") == 0) zones();
  else if (strcmp(pattern, "blocks") == 0) blocks();
  else if (strcmp(pattern, "loop") == 0) loop();
  else if (strcmp(pattern, "random") == 0) random_reads();
  else if (strcmp(pattern, "stream") == 0) stream_of_reads();
  else return 2;
  printf("%016lx\n", sum);
  return 0;
}
