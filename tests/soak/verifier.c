// verifier SECONDS MIB SEED [OPERATION...]: random operations on MIB of memory, every byte of which is known. A wrong
// value ends it with status 99. Operations: fork, user (becomes uid 65534 at first), threads; none: reads, writes,
// frees, and discards only.
//
// A page holds (slot, version) mixed into each of its words. The versions are in .bss, which is always near.
#define THREADS 3

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "../system/programs/far.h"

#define WORDS (PAGE / sizeof(uint64_t))
#define MAX_PAGES (1u << 18)
#define BLOCK_PAGES 256

static uint64_t versions[MAX_PAGES];  // 0: the page reads as zero
static uint64_t* blocks[MAX_PAGES / BLOCK_PAGES];
static unsigned pages_per_thread;
static time_t ends;
static int forks;

struct random {
  uint64_t state;
};

static uint64_t next(struct random* r) {
  r->state ^= r->state << 13;
  r->state ^= r->state >> 7;
  r->state ^= r->state << 17;
  return r->state;
}

static uint64_t* page_at(unsigned page) { return blocks[page / BLOCK_PAGES] + page % BLOCK_PAGES * WORDS; }

static uint64_t word_of(unsigned page, size_t word) {
  return versions[page] == 0 ? 0 : (versions[page] * 0x9e3779b97f4a7c15u) ^ (((uint64_t)page << 32) + word);
}

static void verify(unsigned page) {
  const uint64_t* words = page_at(page);
  for (size_t i = 0; i < WORDS; i++) {
    if (words[i] == word_of(page, i)) continue;
    dprintf(2, "page %u at %p, word %zu: %lx instead of %lx, version %lu\n", page, (void*)words, i,
            (unsigned long)words[i], (unsigned long)word_of(page, i), (unsigned long)versions[page]);
    _exit(99);
  }
}

static void write_page(unsigned page) {
  uint64_t* words = page_at(page);
  versions[page]++;
  for (size_t i = 0; i < WORDS; i++) words[i] = word_of(page, i);
}

static void allocate(unsigned block) {
  blocks[block] = aligned_alloc(PAGE, BLOCK_PAGES * PAGE);
  CHECK(blocks[block]);
  for (unsigned page = block * BLOCK_PAGES; page < (block + 1) * BLOCK_PAGES; page++) write_page(page);
}

static void verify_all(unsigned from, unsigned to) {
  for (unsigned page = from; page < to; page++) verify(page);
}

// The child has the memory of the fork: it verifies all of it, changes a part, and verifies that.
static void fork_and_verify(struct random* random, unsigned from) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    verify_all(from, from + pages_per_thread);
    for (int i = 0; i < 100; i++) write_page(from + (unsigned)(next(random) % pages_per_thread));
    verify_all(from, from + pages_per_thread);
    _exit(0);
  }
  for (int i = 0; i < 100; i++) write_page(from + (unsigned)(next(random) % pages_per_thread));
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) {
    dprintf(2, "a child ended with status %x\n", (unsigned)status);
    _exit(99);
  }
}

static void discard(unsigned page) {
  CHECK(madvise(page_at(page), PAGE, MADV_DONTNEED) == 0);
  versions[page] = 0;
}

static void step(struct random* random, unsigned from) {
  unsigned page = from + (unsigned)(next(random) % pages_per_thread);
  unsigned what = (unsigned)(next(random) % 1000);
  if (what < 500) return verify(page);
  if (what < 980) return write_page(page);
  if (what < 990) {
    for (unsigned p = page; p < from + pages_per_thread && p < page + 200; p++) verify(p);  // a stream
    return;
  }
  if (what < 997) return discard(page);
  if (what < 999 || !forks || next(random) % 20 != 0) {
    free(blocks[page / BLOCK_PAGES]);
    return allocate(page / BLOCK_PAGES);
  }
  fork_and_verify(random, from);
}

static void* run(void* argument) {
  struct random random = {*(uint64_t*)argument};
  unsigned from = (unsigned)(random.state % THREADS) * pages_per_thread;
  for (unsigned block = from / BLOCK_PAGES; block < (from + pages_per_thread) / BLOCK_PAGES; block++) allocate(block);
  while (time(NULL) < ends) {
    for (int i = 0; i < 100; i++) step(&random, from);
  }
  verify_all(from, from + pages_per_thread);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  ends = time(NULL) + atol(argv[1]);
  uint64_t seed = strtoul(argv[3], NULL, 10) + 1;
  int threads = 1;
  for (int i = 4; i < argc; i++) {
    if (!strcmp(argv[i], "fork")) forks = 1;
    else if (!strcmp(argv[i], "threads")) threads = THREADS;
    else if (!strcmp(argv[i], "user")) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    else return 2;
  }
  pages_per_thread =
      (unsigned)(strtoul(argv[2], NULL, 10) * (MIB / PAGE)) / (unsigned)threads / BLOCK_PAGES * BLOCK_PAGES;
  CHECK(pages_per_thread > 0 && pages_per_thread * (unsigned)threads <= MAX_PAGES);
  pthread_t others[THREADS];
  uint64_t seeds[THREADS];
  for (int i = 0; i < threads; i++) {
    seeds[i] = seed * THREADS + (uint64_t)i;
    CHECK(pthread_create(&others[i], NULL, run, &seeds[i]) == 0);
  }
  for (int i = 0; i < threads; i++) CHECK(pthread_join(others[i], NULL) == 0);
  puts("verified");
  return 0;
}
