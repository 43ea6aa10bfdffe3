// One bit per page of a region, initially 0. It uses memory only for parts where bits were set, and knows how much. Not
// thread-safe.
#pragma once
#include <algorithm>
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
    uint64_t &word = (*part)[page % kPartPages / 64], bit = uint64_t{1} << (page % 64);
    count_ += !(word & bit);
    word |= bit;
  }
  void reset(uint64_t page) {
    if (!test(page)) return;
    (*parts_[page / kPartPages])[page % kPartPages / 64] &= ~(uint64_t{1} << (page % 64));
    count_--;
  }
  uint64_t count() const { return count_; }

  // Whether the bit of a page is set, and how many pages of its word, from it on, are alike.
  struct Run {
    bool set;
    uint64_t pages;
  };
  Run run(uint64_t page) const {
    const Part* part = parts_[page / kPartPages].get();
    uint64_t word = (part ? (*part)[page % kPartPages / 64] : 0) >> (page % 64), left = 64 - page % 64;
    bool set = word & 1;
    return {set, std::min(left, static_cast<uint64_t>(set ? std::countr_one(word) : std::countr_zero(word)))};
  }
  // The first page from `page` on whose bit is set, or kNone.
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t next(uint64_t page) const {
    for (uint64_t at = page; at / kPartPages < parts_.size();) {
      const Part* part = parts_[at / kPartPages].get();
      uint64_t word = part ? (*part)[at % kPartPages / 64] >> (at % 64) : 0;
      if (word != 0) return at + static_cast<uint64_t>(std::countr_zero(word));
      at = part ? (at / 64 + 1) * 64 : (at / kPartPages + 1) * kPartPages;
    }
    return kNone;
  }

  // Setting the bit needs no more memory.
  bool has_part_of(uint64_t page) const { return parts_[page / kPartPages] != nullptr; }
  void clear() {
    for (auto& part : parts_) part.reset();
    used_parts_ = 0;
    count_ = 0;
  }

  uint64_t memory_bytes() const { return parts_.size() * sizeof parts_[0] + used_parts_ * sizeof(Part); }

 private:
  using Part = std::array<uint64_t, kPartPages / 64>;

  std::vector<std::unique_ptr<Part>> parts_;
  uint64_t used_parts_ = 0;
  uint64_t count_ = 0;  // of set bits
};

}  // namespace farside::server
