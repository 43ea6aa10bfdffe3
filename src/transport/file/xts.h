// AES-256-XTS (IEEE 1619) for pages in a far file: a unit is one page, and its number is the page's slot. A library
// cannot serve: channels run under page faults in the process of a program, into which no OpenSSL may be loaded
// (docs/decisions/0028, 0031). Uses the processor's AES instructions, whose time does not depend on the data.
//   Cost: about 1 us a page. Async-signal-safe; thread-safe after construction.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/near.h"

namespace farside::transport {

class XtsCipher : public NearObject {
 public:
  static constexpr size_t kKeyBytes = 64;  // of the data, then of the tweaks

  static bool is_supported();  // by this processor

  explicit XtsCipher(const uint8_t* key);
  // `bytes` is a multiple of 128. In place if from == to.
  void encrypt(uint64_t unit, const std::byte* from, std::byte* to, size_t bytes) const;
  void decrypt(uint64_t unit, std::byte* data, size_t bytes) const;

 private:
  static constexpr unsigned kRounds = 14, kRoundKeyBytes = (kRounds + 1) * 16;
  alignas(16) uint8_t encrypt_[kRoundKeyBytes];
  alignas(16) uint8_t decrypt_[kRoundKeyBytes];
  alignas(16) uint8_t tweak_[kRoundKeyBytes];
};

}  // namespace farside::transport
