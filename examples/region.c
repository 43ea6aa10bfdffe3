/* Far allocation: a region is far memory with an eviction policy of its own, and grows up to its capacity. Here is a
 * log that is appended to and rarely read, so its oldest pages are evicted first.
 *
 *   farside run --local 16M -- ./region */
#include <farside/farside.h>
#include <stdio.h>
#include <string.h>

enum { kEntries = 200000, kCapacity = 64 << 20, kGrowth = 4 << 20 };

struct entry {
  uint32_t number;
  char text[124];
};

static int fail(const char* what, int error) {
  fprintf(stderr, "region: cannot %s: %s\n", what, strerror(-error));
  return 1;
}

int main(void) {
  farside_region* region;
  int error = farside_region_create(&region, 0, kCapacity, "fifo");
  if (error) return fail("create the region", error);

  struct entry* log = farside_region_data(region);
  for (uint32_t i = 0; i < kEntries; i++) {
    if ((i + 1) * sizeof *log > farside_region_size(region)) {
      error = farside_region_resize(region, farside_region_size(region) + kGrowth);
      if (error) return fail("grow the region", error);
    }
    log[i].number = i;
    snprintf(log[i].text, sizeof log[i].text, "entry %u", i);
  }

  printf("%d entries in %zu MiB, the first is '%s', the last is '%s'\n", kEntries, farside_region_size(region) >> 20,
         log[0].text, log[kEntries - 1].text);
  farside_region_destroy(region);
  return 0;
}
