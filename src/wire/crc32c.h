// CRC-32C (Castagnoli), the checksum of frames. Pure functions: thread-safe, async-signal-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside::wire {

// The checksum of the data that `crc` covers, followed by these bytes. The checksum of no data is 0.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);

// The implementation for machines without the crc32 instruction, also used to test the other one.
uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes);

}  // namespace farside::wire
