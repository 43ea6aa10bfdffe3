#include "packed/codec.h"

#include <lz4.h>

#include <cstdint>
#include <cstring>

namespace farside::packed {
namespace {

constexpr size_t kWordBytes = sizeof(uint64_t);  // LZ4 needs more for a page, so this size means a repeated word

}  // namespace

size_t pack_page(const std::byte* page, std::byte* to) {
  if (memcmp(page, page + kWordBytes, kPageBytes - kWordBytes) == 0) {
    memcpy(to, page, kWordBytes);
    return kWordBytes;
  }
  int bytes = LZ4_compress_default(reinterpret_cast<const char*>(page), reinterpret_cast<char*>(to), kPageBytes,
                                   kMaxPackedBytes);
  return bytes > static_cast<int>(kWordBytes) ? static_cast<size_t>(bytes) : 0;
}

bool unpack_page(const std::byte* from, size_t bytes, std::byte* page) {
  if (bytes == kWordBytes) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    for (size_t at = 0; at < kPageBytes; at += sizeof word) memcpy(page + at, &word, sizeof word);
    return true;
  }
  return LZ4_decompress_safe(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(page),
                             static_cast<int>(bytes), kPageBytes) == static_cast<int>(kPageBytes);
}

}  // namespace farside::packed
