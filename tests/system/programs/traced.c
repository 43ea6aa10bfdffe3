// Faults at known lines. test_trace.py searches this file for the marks "FAULTS: kind, pattern, site" and requires that
// farside trace names exactly these lines. The mark "SITE: name" is at the line that allocates the memory.
#include "far.h"

#define BIG (48 * MIB)
#define PAGES (BIG / PAGE)
#define STEP 5  // pages
#define ROUNDS 3

struct node {
  struct node* next;
  char rest[PAGE - sizeof(struct node*)];
};

static volatile uint64_t sink;

static uint32_t random_below(uint32_t limit) {
  static uint32_t state = 12345;
  state = state * 1664525 + 1013904223;
  return (uint32_t)((uint64_t)state * limit >> 32);
}

__attribute__((noinline)) static void write_first(char* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) to[at] = (char)at;  // FAULTS: allocation, sequential, table
}

// Inlined into the loop below; the report must name the line of this function.
static inline __attribute__((always_inline)) uint64_t look_up(const char* table, uint32_t page) {
  return (unsigned char)table[page * PAGE + 128];  // FAULTS: read, random, table
}

__attribute__((noinline)) static void read_anywhere(const char* table) {
  for (int i = 0; i < ROUNDS * 12000; i++) sink += look_up(table, random_below(PAGES));
}

__attribute__((noinline)) static void read_strided(const char* table) {
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t at = (size_t)round * PAGE; at < BIG; at += STEP * PAGE) {
      sink += (unsigned char)table[at];  // FAULTS: read, strided, table
    }
  }
}

// Pages are fetched for reading, then written: two kinds of faults at two lines. Both bytes are on the same page
// wherever malloc places the table, because it begins at a cache line.
__attribute__((noinline)) static void change(char* table) {
  for (size_t at = 0; at < BIG; at += PAGE) {
    if (table[at + 100] == 77) sink++;  // FAULTS: read, sequential, table
    table[at + 101]++;                  // FAULTS: protection, sequential, table
  }
}

// Nodes in random order, chained.
__attribute__((noinline)) static struct node* make_chain(size_t count) {
  struct node* nodes = malloc(count * sizeof *nodes);  // SITE: nodes
  CHECK(nodes);
  uint32_t* order = malloc(count * sizeof *order);
  CHECK(order);
  for (uint32_t i = 0; i < count; i++) order[i] = i;
  for (uint32_t i = (uint32_t)count - 1; i > 0; i--) {
    uint32_t j = random_below(i), swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
  for (size_t i = 0; i < count; i++) nodes[i].next = NULL;  // FAULTS: allocation, sequential, nodes
  for (size_t i = 0; i + 1 < count; i++) {
    struct node* from = nodes + order[i];
    from->next = nodes + order[i + 1];  // FAULTS: write, random, nodes
  }
  struct node* first = nodes + order[0];
  free(order);
  return first;
}

__attribute__((noinline)) static size_t walk(const struct node* node) {
  size_t length = 0;
  for (; node; node = node->next) length++;  // FAULTS: read, pointer chase, nodes
  return length;
}

// libc faults here; the report must name the line that calls it.
__attribute__((noinline)) static void copy(char* to, const char* from) {
  for (size_t at = 0; at < BIG; at += MIB) memcpy(to + at, from + at, MIB);  // FAULTS: any, sequential/backwards, copy
}

int main(void) {
  char* table = malloc(BIG);  // SITE: table
  CHECK(table);
  write_first(table, BIG);
  read_anywhere(table);
  read_strided(table);
  change(table);
  struct node* chain = make_chain(PAGES);
  for (int round = 0; round < ROUNDS; round++) CHECK(walk(chain) == PAGES);
  char* second = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // SITE: copy
  CHECK(second != MAP_FAILED);
  for (int round = 0; round < ROUNDS; round++) copy(second, table);
  puts("done");
  return 0;
}
