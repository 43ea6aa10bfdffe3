// One bit per page of a region, initially 0. It uses memory only for parts where bits were set, and knows how much. Not
// thread-safe.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

namespace farside::server {

class PageBitmap {
 public:
  static constexpr uint64_t kPartPages = 32768;  // 128 MiB of a region

  explicit PageBitmap(uint64_t pages) : parts_((pages + kPartPages - 1) / kPartPages) {}

  bool test(uint64_t page) const {
    const Part* part = parts_[page / kPartPages].get();
    return part && ((*part)[page % kPartPages / 64] >> (page % 64) & 1);
  }
  void set(uint64_t page) {
    std::unique_ptr<Part>& part = parts_[page / kPartPages];
    if (!part) {
      part = std::make_unique<Part>();
      used_parts_++;
    }
    (*part)[page % kPartPages / 64] |= uint64_t{1} << (page % 64);
  }

  // Setting the bit needs no more memory.
  bool has_part_of(uint64_t page) const { return parts_[page / kPartPages] != nullptr; }
  void clear() {
    for (auto& part : parts_) part.reset();
    used_parts_ = 0;
  }

  uint64_t memory_bytes() const { return parts_.size() * sizeof parts_[0] + used_parts_ * sizeof(Part); }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (uint64_t p = 0; p < parts_.size(); p++) {
      for (uint64_t w = 0; parts_[p] && w < parts_[p]->size(); w++) {
        for (uint64_t rest = (*parts_[p])[w]; rest != 0; rest &= rest - 1)
          visit(p * kPartPages + w * 64 + static_cast<uint64_t>(std::countr_zero(rest)));
      }
    }
  }

 private:
  using Part = std::array<uint64_t, kPartPages / 64>;

  std::vector<std::unique_ptr<Part>> parts_;
  uint64_t used_parts_ = 0;
};

}  // namespace farside::server
