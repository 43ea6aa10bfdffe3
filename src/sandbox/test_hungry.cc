// An object whose constructor takes all memory that it can get, as private and as shared memory.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "farside/offload.h"

namespace {

uint64_t take_all(int flags) {
  constexpr uint64_t kPart = 1 << 20, kEnough = uint64_t{1} << 30;
  uint64_t got = 0;
  for (; got < kEnough; got += kPart) {
    void* part = mmap(nullptr, kPart, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (part == MAP_FAILED) break;
    memset(part, 1, kPart);
  }
  return got;
}

const uint64_t g_shared = take_all(MAP_SHARED), g_private = take_all(MAP_PRIVATE);

}  // namespace

// The result: what the constructor got of shared memory, and what it and this function got in all.
extern "C" __attribute__((visibility("default"))) int count_memory(void*, const void*, size_t,
                                                                   farside_offload_output* output) {
  uint64_t got[2] = {g_shared, g_shared + g_private + take_all(MAP_PRIVATE)};
  memcpy(output->data, got, sizeof got);
  output->bytes = sizeof got;
  return 0;
}
