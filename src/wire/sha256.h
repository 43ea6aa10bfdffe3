// SHA-256 and HMAC-SHA-256 (RFC 6234, RFC 2104), for the proofs of auth.h. A connection may be opened under a page
// fault in a program that knows nothing of Farside, so no library can be used there (docs/decisions/0027). No
// allocation, no locks: thread-safe, async-signal-safe. The time does not depend on the data.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace farside::wire {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void update(std::span<const std::byte> data);
  Digest finish();  // once

  static constexpr size_t kBlockBytes = 64;

 private:
  void add_block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t bytes_ = 0;
  uint8_t block_[kBlockBytes];  // the first bytes_ % kBlockBytes are filled
};

class HmacSha256 {
 public:
  explicit HmacSha256(std::span<const std::byte> key);
  void update(std::span<const std::byte> data) { inner_.update(data); }
  Digest finish();  // once

 private:
  Sha256 inner_, outer_;
};

}  // namespace farside::wire
