// CRC-32C (Castagnoli), as the wire uses it. Pure; safe everywhere.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside::wire {

// The checksum of what `crc` already covers followed by these bytes. Start with 0.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);

// The portable form, for machines without the instruction and to check the other one against.
uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes);

}  // namespace farside::wire
