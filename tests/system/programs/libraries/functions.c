/* Shared objects with functions that test_offload calls on memory servers: the same names, another VERSION in each. */
#include <farside/offload.h>
#include <string.h>

__attribute__((visibility("default"))) int offload_version(void* function, const void* arguments, size_t bytes,
                                                           struct farside_offload_output* output) {
  static const int version = VERSION;
  (void)function, (void)arguments, (void)bytes;
  memcpy(output->data, &version, sizeof version);
  output->bytes = sizeof version;
  return 0;
}
