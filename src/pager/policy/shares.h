// Divides a number in proportion to sizes, so that the shares add up exactly: points are placed at equal distances over
// the concatenation of all sizes, and a share is the number of points within its size. `turn` shifts the points by a
// fraction of the distance, so that over the turns even the smallest size gets its share.
#pragma once
#include <cstdint>
#include <span>

namespace farside::pager {

inline void share_out(size_t wanted, uint32_t turn, std::span<const uint64_t> sizes, std::span<size_t> shares) {
  constexpr uint32_t kGoldenRatio = 0x9e3779b9;  // its multiples modulo 2^32 never cluster
  uint64_t total = 0, before = 0;
  for (uint64_t size : sizes) total += size;
  uint64_t shift = (uint64_t{turn * kGoldenRatio} * total) >> 32;
  for (size_t i = 0; i < sizes.size(); i++) {
    uint64_t after = before + sizes[i] * wanted;
    shares[i] = total == 0 ? 0 : static_cast<size_t>((after + shift) / total - (before + shift) / total);
    before = after;
  }
}

}  // namespace farside::pager
