/* Hints: a table is read in random order, and each row is announced some steps before it is used. Near memory decides
 * how many of these rows are fetched, and never what is printed.
 *
 *   farside run --local 25% -- ./hints */
#include <farside/farside.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 1 << 17, kSteps = 1 << 16, kAhead = 16 };

struct row {
  uint64_t value;
  char other[248];
};

static size_t row_of_step(uint64_t step) { return step * 2654435761u % kRows; }

int main(void) {
  struct row* rows = calloc(kRows, sizeof *rows); /* 32 MiB */
  if (!rows) return 1;
  for (size_t i = 0; i < kRows; i++) rows[i].value = i;

  uint64_t sum = 0;
  for (uint64_t step = 0; step < kSteps; step++) {
    farside_hint_read(&rows[row_of_step(step + kAhead)], sizeof *rows);
    sum += rows[row_of_step(step)].value;
  }
  printf("sum of %d rows: %llu\n", kSteps, (unsigned long long)sum);

  struct farside_stats stats;
  if (farside_get_stats(&stats) == 0)
    fprintf(stderr, "%llu pages fetched by hints\n", (unsigned long long)stats.hints_fetched);
  free(rows);
  return 0;
}
