// The slabs of a region that may hold data. The kernel's index of a sparse file needs memory for each of them, however
// few pages it has. Thread-safe, except moves.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/protocol.h"

namespace farside::server {

class SlabSet {
 public:
  SlabSet() = default;
  explicit SlabSet(uint64_t region_bytes) : words_(region_bytes / wire::kSlabBytes / 64 + 1) {}

  bool contains(uint64_t offset) const {
    return __atomic_load_n(&words_[word(offset)], __ATOMIC_RELAXED) & bit(offset);
  }
  void add(uint64_t offset) {
    if (contains(offset)) return;
    uint64_t before = __atomic_fetch_or(&words_[word(offset)], bit(offset), __ATOMIC_RELAXED);
    if (!(before & bit(offset))) __atomic_fetch_add(&count_, 1, __ATOMIC_RELAXED);
  }
  void remove(uint64_t offset) {
    uint64_t before = __atomic_fetch_and(&words_[word(offset)], ~bit(offset), __ATOMIC_RELAXED);
    if (before & bit(offset)) __atomic_fetch_sub(&count_, 1, __ATOMIC_RELAXED);
  }
  // The first slab from the one of `offset` on that is in the set; its offset, or kNone. Skips 64 slabs at a time.
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t next(uint64_t offset) const {
    uint64_t mask = ~(bit(offset) - 1);
    for (size_t w = word(offset); w < words_.size(); w++, mask = ~uint64_t{0}) {
      uint64_t found = __atomic_load_n(&words_[w], __ATOMIC_RELAXED) & mask;
      if (found) return (w * 64 + static_cast<uint64_t>(std::countr_zero(found))) * wire::kSlabBytes;
    }
    return kNone;
  }
  uint64_t count() const { return __atomic_load_n(&count_, __ATOMIC_RELAXED); }
  uint64_t memory_bytes() const { return words_.size() * sizeof words_[0]; }

 private:
  static size_t word(uint64_t offset) { return offset / wire::kSlabBytes / 64; }
  static uint64_t bit(uint64_t offset) { return uint64_t{1} << (offset / wire::kSlabBytes % 64); }

  std::vector<uint64_t> words_;
  uint64_t count_ = 0;
};

}  // namespace farside::server
