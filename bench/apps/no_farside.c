/* Stands in for the library that fills farside_view under `farside run`: hints do nothing. */
#include <farside/farside.h>

__attribute__((weak)) struct farside_view farside_view;
__attribute__((weak)) void farside_hint_slow(const void *address, size_t bytes, unsigned options) {
  (void)address;
  (void)bytes;
  (void)options;
}
