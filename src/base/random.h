// Random numbers of the kernel, for secrets. They end the process where the kernel grants none. Async-signal-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside {

void fill_random(void* to, size_t bytes);  // at most 256
uint64_t random_u64();

}  // namespace farside
