// Compression of one page: pages of one repeated word are stored as that word, others by LZ4 or by zstd, which makes
// them a third smaller and takes four times as long. Unpacking is async-signal-safe; it reads and writes only within
// its buffers, whatever the bytes are, also while others change them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "packed/layout.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace farside::packed {

inline constexpr size_t kMaxPackedBytes = 3 * kPageBytes / 4;  // else the page is not worth it

enum class Codec : uint8_t { kLz4, kZstd };

// By LZ4. Writes at most kMaxPackedBytes. Returns how many; 0: the page cannot be compressed. Uses 16 KiB of stack.
size_t pack_page(const std::byte* page, std::byte* to);

// The same by zstd. Used by one thread.
class ZstdPacker {
 public:
  ZstdPacker() = default;
  ~ZstdPacker();
  ZstdPacker(const ZstdPacker&) = delete;
  ZstdPacker& operator=(const ZstdPacker&) = delete;
  size_t pack(const std::byte* page, std::byte* to);

 private:
  ZSTD_CCtx_s* context_ = nullptr;  // from the first page on
};

// What one thread needs to unpack pages: near memory, and more of it from the first page of zstd on.
class Unpacker {
 public:
  Unpacker() = default;
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // False: these bytes are no page.
  bool unpack(Codec codec, const std::byte* from, size_t bytes, std::byte* page);
  // For the caller's own use, between two calls.
  std::byte* scratch() { return scratch_; }

 private:
  bool unpack_zstd(const std::byte* from, size_t bytes, std::byte* page);

  std::byte scratch_[kPageBytes];
  std::byte input_[kMaxPackedBytes];  // a copy: zstd trusts that its input does not change
  std::byte* memory_ = nullptr;
  ZSTD_DCtx_s* context_ = nullptr;  // in it
};

}  // namespace farside::packed
