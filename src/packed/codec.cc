#include "packed/codec.h"

#include <lz4.h>
#include <zstd.h>

#include <cstring>

#include "base/near.h"

namespace farside::packed {
namespace {

constexpr size_t kWordBytes =
    sizeof(uint64_t);  // LZ4 and zstd need more for a page, so this size means a repeated word

bool is_repeated_word(const std::byte* page) { return memcmp(page, page + kWordBytes, kPageBytes - kWordBytes) == 0; }

}  // namespace

size_t pack_page(const std::byte* page, std::byte* to) {
  if (is_repeated_word(page)) {
    memcpy(to, page, kWordBytes);
    return kWordBytes;
  }
  int bytes = LZ4_compress_default(reinterpret_cast<const char*>(page), reinterpret_cast<char*>(to), kPageBytes,
                                   kMaxPackedBytes);
  return bytes > static_cast<int>(kWordBytes) ? static_cast<size_t>(bytes) : 0;
}

Unpacker::~Unpacker() {
  if (memory_) near_free(memory_, ZSTD_estimateDCtxSize());
}

bool Unpacker::unpack(Codec codec, const std::byte* from, size_t bytes, std::byte* page) {
  if (bytes == kWordBytes) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    for (size_t at = 0; at < kPageBytes; at += sizeof word) memcpy(page + at, &word, sizeof word);
    return true;
  }
  if (codec == Codec::kZstd) return unpack_zstd(from, bytes, page);
  return LZ4_decompress_safe(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(page),
                             static_cast<int>(bytes), kPageBytes) == static_cast<int>(kPageBytes);
}

bool Unpacker::unpack_zstd(const std::byte* from, size_t bytes, std::byte* page) {
  if (bytes == 0 || bytes > sizeof input_) return false;
  if (!memory_) {
    memory_ = static_cast<std::byte*>(near_alloc(ZSTD_estimateDCtxSize()));
    context_ = ZSTD_initStaticDCtx(memory_, ZSTD_estimateDCtxSize());
  }
  memcpy(input_, from, bytes);
  ZSTD_decompressBegin(context_);
  return ZSTD_decompressBlock(context_, page, kPageBytes, input_, bytes) == kPageBytes;
}

}  // namespace farside::packed
