// The pages of a region that are stored for certain, because the server wrote them and nothing has discarded them
// since. A page that is not in the set may be stored as well. Uses memory only for parts where pages were added. add()
// and contains() are thread-safe; remove() and moves exclude all other calls.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace farside::server {

class StoredPages {
 public:
  static constexpr uint64_t kPartPages = 262'144;  // 1 GiB of a region

  StoredPages() = default;
  explicit StoredPages(uint64_t pages)
      : parts_(std::make_unique<std::atomic<Part*>[]>((pages + kPartPages - 1) / kPartPages)),
        count_((pages + kPartPages - 1) / kPartPages) {}
  ~StoredPages() {
    for (uint64_t i = 0; i < count_; i++) delete parts_[i].load();
  }
  StoredPages(const StoredPages&) = delete;
  StoredPages& operator=(const StoredPages&) = delete;
  void swap(StoredPages& other) {
    std::swap(parts_, other.parts_);
    std::swap(count_, other.count_);
    uint64_t used = used_;
    used_ = other.used_.load();
    other.used_ = used;
  }

  // Pages first to end - 1. Both are inside the region.
  bool contains(uint64_t first, uint64_t end) const {
    for (uint64_t at = first; at < end; at = next_word(at)) {
      const Part* part = parts_[at / kPartPages].load(std::memory_order_acquire);
      uint64_t mask = mask_of(at, end);
      if (!part || ((*part)[word_of(at)].load(std::memory_order_acquire) & mask) != mask) return false;
    }
    return true;
  }
  void add(uint64_t first, uint64_t end) {
    for (uint64_t at = first; at < end; at = next_word(at)) {
      std::atomic<uint64_t>& word = part_of(at)[word_of(at)];
      uint64_t mask = mask_of(at, end);
      if ((word.load(std::memory_order_relaxed) & mask) != mask) word.fetch_or(mask, std::memory_order_release);
    }
  }
  void remove(uint64_t first, uint64_t end) {
    for (uint64_t at = first; at < end;) {
      Part* part = parts_[at / kPartPages].load(std::memory_order_relaxed);
      if (!part) {
        at = (at / kPartPages + 1) * kPartPages;
        continue;
      }
      (*part)[word_of(at)].fetch_and(~mask_of(at, end), std::memory_order_relaxed);
      at = next_word(at);
    }
  }

  uint64_t memory_bytes() const { return count_ * sizeof parts_[0] + used_ * sizeof(Part); }

 private:
  using Part = std::array<std::atomic<uint64_t>, kPartPages / 64>;

  static uint64_t next_word(uint64_t page) { return page / 64 * 64 + 64; }
  static uint64_t word_of(uint64_t page) { return page % kPartPages / 64; }
  // The bits of the pages from `page` to `end`, as far as they are in the word of `page`.
  static uint64_t mask_of(uint64_t page, uint64_t end) {
    uint64_t count = std::min(end, next_word(page)) - page;
    return (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << (page % 64);
  }
  Part& part_of(uint64_t page) {
    std::atomic<Part*>& slot = parts_[page / kPartPages];
    Part* part = slot.load(std::memory_order_acquire);
    if (part) return *part;
    auto made = std::make_unique<Part>();
    if (!slot.compare_exchange_strong(part, made.get(), std::memory_order_acq_rel)) return *part;
    used_ += 1;
    return *made.release();
  }

  std::unique_ptr<std::atomic<Part*>[]> parts_;
  uint64_t count_ = 0;
  std::atomic<uint64_t> used_{0};  // parts with memory
};

}  // namespace farside::server
