/* Accesses a table at random and in order. Hints, right and wrong ones, must not change the output. Also checks
 * regions. hinted [none|right|wrong]: prints a checksum; statistics, and whether it runs under Farside, go to stderr.
 */
#include <errno.h>
#include <farside/farside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FARSIDE_VERSION < FARSIDE_MAKE_VERSION(0, 1, 0)
#error "an old header"
#endif

enum { kWords = 4 << 20, kSteps = 100000 };

static uint64_t next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

static int check_regions(void) {
  farside_region *region = NULL, *refused = NULL;
  if (farside_region_create(&region, 1 << 20, 64 << 20, "lru") != 0 || farside_region_size(region) != 1 << 20) return 1;
  char* data = farside_region_data(region);
  memset(data, 7, 1 << 20);
  if (farside_region_resize(region, 48 << 20) != 0 || data[1 << 20] != 0 || data[5] != 7) return 2;
  for (size_t i = 0; i < 48u << 20; i += 4096) data[i] = (char)(i >> 12);
  for (size_t i = 0; i < 48u << 20; i += 4096) {
    if (data[i] != (char)(i >> 12)) return 3;
  }
  if (farside_region_resize(region, 4096) != 0 || farside_region_resize(region, 2 << 20) != 0 || data[8192] != 0)
    return 4;
  if (farside_region_resize(region, (64 << 20) + 1) != -EINVAL) return 5;
  if (farside_region_create(&refused, 2, 1, NULL) != -EINVAL) return 6;
  if (farside_region_create(&refused, 1, 1, "nonsense") != -EINVAL || refused) return 7;
  farside_region_destroy(region);
  return 0;
}

/* Blocks keep their content when they grow from malloc's into regions and shrink again; more than there may be regions
 * with a policy. */
static int check_blocks(void) {
  enum { kBlocks = 80, kSmall = 1000, kLarge = 100000 };
  unsigned char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; i++) {
    blocks[i] = farside_block_calloc("lru", kSmall, i % 2 ? 1 : kLarge / kSmall);
    if (!blocks[i] || (uintptr_t)blocks[i] % 64 != 0 || blocks[i][kSmall - 1] != 0) return 1;
    memset(blocks[i], i, kSmall);
    blocks[i] = farside_block_realloc("lru", blocks[i], i % 3 ? kLarge : kSmall);
    if (!blocks[i]) return 2;
  }
  for (int i = 0; i < kBlocks; i++) {
    if (blocks[i][0] != i || blocks[i][kSmall - 1] != i) return 3;
    farside_block_free("lru", blocks[i], 0);
  }
  farside_block_free(NULL, NULL, 0);
  if (farside_block_malloc(NULL, SIZE_MAX) || farside_block_malloc("lru", (size_t)1 << 55)) return 4;
  if (farside_block_calloc(NULL, SIZE_MAX / 2, 3)) return 5;
  return 0;
}

static int check_costs(int far) {
  struct farside_costs costs;
  if (farside_get_costs(&costs) != (far ? 0 : -ENOSYS)) return 1;
  if (!far) return costs.fault_ns != 0 || costs.bytes_fetched != 0;
  if (costs.fetches == 0 || costs.fault_ns < costs.fetches || costs.busiest_thread_fetches > costs.fetches) return 2;
  return costs.bytes_fetched < costs.fetches * 4096 || costs.bytes_written == 0;
}

int main(int count, char** arguments) {
  const char* hints = count > 1 ? arguments[1] : "none";
  int right = strcmp(hints, "right") == 0, wrong = strcmp(hints, "wrong") == 0;
  uint64_t *words = malloc(kWords * sizeof *words), sum = 0, places = 88172645463325252u, nonsense = 1;
  for (size_t i = 0; i < kWords; i++) {
    if (right) farside_hint(&words[i], sizeof *words, FARSIDE_WRITE | FARSIDE_SEQ | FARSIDE_AHEAD(32));
    words[i] = i * 2654435761u;
  }
  for (size_t i = 0; i < kSteps; i++) {
    size_t at = next(&places) % kWords;
    if (right) farside_hint_read(&words[at], sizeof *words);
    if (wrong && i % 64 == 0) {
      farside_hint((void*)(uintptr_t)next(&nonsense), next(&nonsense), (unsigned)next(&nonsense));
      farside_hint(&words[at], next(&nonsense) % (1 << 30), (unsigned)next(&nonsense));
      uintptr_t nowhere = farside_view.bytes ? farside_view.begin + next(&nonsense) % farside_view.bytes : 1;
      farside_hint((void*)nowhere, 64, (unsigned)next(&nonsense));
      void* freed = malloc(1 << 18);
      free(freed);
      farside_hint_write(freed, 1 << 18);
    }
    sum = sum * 31 + words[at];
    if (i % 3 == 0) {
      if (right) farside_hint_write(&words[at], sizeof *words);
      words[at] ^= sum;
    }
  }
  for (size_t i = 0; i < kWords; i++) {
    if (right) farside_hint(&words[i], sizeof *words, FARSIDE_SEQ | FARSIDE_AHEAD(63));
    sum = sum * 31 + words[i];
  }
  printf("%016llx\n", (unsigned long long)sum);
  int problem = check_regions();
  if (problem) printf("regions are wrong: %d\n", problem);
  problem = check_blocks();
  if (problem) printf("blocks are wrong: %d\n", problem);
  if (farside_version() != FARSIDE_VERSION) printf("header and library differ\n");
  struct farside_stats stats;
  int far = farside_get_stats(&stats) == 0;
  problem = check_costs(far);
  if (problem) printf("costs are wrong: %d\n", problem);
  if (farside_set_limit(1) != (far ? -EINVAL : -ENOSYS)) printf("a wrong limit is accepted\n");
  if (far && (farside_set_limit(9 << 20) != 0 || farside_get_stats(&stats) != 0 || stats.near_limit_bytes != 9 << 20))
    printf("the limit is %llu\n", (unsigned long long)stats.near_limit_bytes);
  fprintf(stderr, "far=%d hints=%llu fetched=%llu wild=%llu faults=%llu\n", far, (unsigned long long)stats.hints,
          (unsigned long long)stats.hints_fetched, (unsigned long long)stats.hints_wild,
          (unsigned long long)stats.faults);
  return problem;
}
