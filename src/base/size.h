// Sizes and shares as text: "256M", "1.5G", "4096", "25%". Ordinary code: format_size allocates.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace farside {

// A number of bytes, with an optional suffix K, M, G or T in either case (powers of 1024; "KiB" and "KB" mean the
// same). EINVAL or ERANGE (9e18 and more), with a text for the user.
Result<uint64_t> parse_size(std::string_view text);

// A number of bytes, a share in (0, 100] percent of a size that is determined later, or "auto", "auto:MIN-MAX": a size
// that follows the program's needs between two limits.
struct SizeOrShare {
  static constexpr double kAutomatic = -1;

  uint64_t bytes = 0;  // automatic: the largest size; 0: no limit
  double share = 0;    // 0 when absolute, in (0, 1], or kAutomatic
  uint64_t least = 0;  // automatic: the smallest size; 0: the usual one
  bool is_share() const { return share > 0; }
  bool is_automatic() const { return share == kAutomatic; }
  bool operator==(const SizeOrShare&) const = default;
};
Result<SizeOrShare> parse_size_or_share(std::string_view text);

// "1.5 GiB", "300 MiB", "12 KiB", "7 B".
std::string format_size(uint64_t bytes);

}  // namespace farside
