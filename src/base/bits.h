// Sizes, addresses and alignment arithmetic. Pure functions; `unit` is a power of two.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace farside {

inline constexpr unsigned kPageShift = 12;
inline constexpr size_t kPageSize = size_t{1} << kPageShift;
inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;
inline constexpr size_t kGiB = 1024 * kMiB;
inline constexpr size_t kCacheLine = 64;

constexpr uint64_t align_down(uint64_t value, uint64_t unit) { return value & ~(unit - 1); }
constexpr uint64_t align_up(uint64_t value, uint64_t unit) { return (value + unit - 1) & ~(unit - 1); }
// 0 where the part is more.
constexpr uint64_t saturating_sub(uint64_t all, uint64_t part) { return all > part ? all - part : 0; }
// Of kPageSize bytes.
inline bool is_zero_page(const std::byte* page) {
  return page[0] == std::byte{0} && memcmp(page, page + 1, kPageSize - 1) == 0;
}
constexpr bool is_aligned(uint64_t value, uint64_t unit) { return (value & (unit - 1)) == 0; }

// An address as a number, and back.
inline uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }
inline std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace farside
