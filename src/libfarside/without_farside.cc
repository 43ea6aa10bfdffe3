// Hints and statistics in a program that does not run under Farside. Under `farside run` the preload library's symbols
// of the same names are found first (src/preload/program_api.cc), and these functions are not called.
#include <errno.h>
#include <string.h>

#include "farside/farside.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

extern "C" {

FARSIDE_PUBLIC struct farside_view farside_view = {0, 0, nullptr};

FARSIDE_PUBLIC void farside_hint_slow(const void*, size_t, unsigned) {}

FARSIDE_PUBLIC int farside_get_stats(struct farside_stats* stats) {
  memset(stats, 0, sizeof *stats);
  return -ENOSYS;
}

FARSIDE_PUBLIC int farside_get_costs(struct farside_costs* costs) {
  memset(costs, 0, sizeof *costs);
  return -ENOSYS;
}

FARSIDE_PUBLIC int farside_set_limit(uint64_t) { return -ENOSYS; }

FARSIDE_PUBLIC int farside_region_set_policy_(const void*, size_t, const char*) { return 0; }

FARSIDE_PUBLIC int farside_version(void) { return FARSIDE_VERSION; }
}
