// How a server compresses pages that are not used.
#pragma once
#include <cstdint>

namespace farside {

// kAuto: by LZ4, and those that are not used for a minute by zstd.
enum class Compression : uint8_t { kOff, kLz4, kZstd, kAuto };
inline constexpr const char* kCompressionNames[] = {"off", "lz4", "zstd", "auto"};

}  // namespace farside
