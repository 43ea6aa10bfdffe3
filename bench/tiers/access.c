// Accesses to pages of given content: access DATA PAGES WAIT COUNT. Fills PAGES pages with the pages of the file DATA,
// each with its number in the first word, sleeps for WAIT seconds, and then makes COUNT random reads; reads of all
// pages in order; writes of all pages in order. Prints "NAME us" after each, and goes on at a line of standard input.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void fill(char* page, const char* data, uint64_t number) {
  memcpy(page, data, PAGE);
  memcpy(page, &number, sizeof number);
}

static void check(const char* page, uint64_t number) {
  if (memcmp(page, &number, sizeof number) == 0) return;
  fprintf(stderr, "page %llu has another content\n", (unsigned long long)number);
  exit(1);
}

static void report(const char* name, double began, uint64_t count) {
  printf("%s %.3f\n", name, (now_us() - began) / (double)count);
  fflush(stdout);
  if (getchar() == EOF) exit(1);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  uint64_t pages = strtoull(argv[2], NULL, 10), count = strtoull(argv[4], NULL, 10), kinds = 0, state = 1;
  static char data[1024][PAGE];  // in no heap: always near
  FILE* file = fopen(argv[1], "r");
  if (!file || (kinds = fread(data, PAGE, 1024, file)) == 0) return 2;
  fclose(file);
  char* memory = aligned_alloc(PAGE, pages * PAGE);
  if (!memory) return 3;
  for (uint64_t i = 0; i < pages; i++) fill(memory + i * PAGE, data[i % kinds], i);
  sleep((unsigned)atoi(argv[3]));
  double began = now_us();
  for (uint64_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t page = (state >> 33) % pages;
    check(memory + page * PAGE, page);
  }
  report("random", began, count);
  began = now_us();
  for (uint64_t i = 0; i < pages; i++) check(memory + i * PAGE, i);
  report("read", began, pages);
  began = now_us();
  for (uint64_t i = 0; i < pages; i++) fill(memory + i * PAGE, data[(i + 7) % kinds], i);
  report("write", began, pages);
  return 0;
}
