// What is kept for each huge page: 512 pages of far space that may share one huge frame. The page words have the states
// of its pages; this table has what concerns all of them.
//
// Thread-safe and async-signal-safe. Populated by the kernel when touched: 80 bytes for 2 MiB.
#pragma once
#include <atomic>
#include <bit>
#include <span>
#include <utility>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "base/os.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

using HugeIndex = uint32_t;  // page number / 512

inline constexpr unsigned kHugePages = 512;
inline constexpr uint64_t kHugeBytes = kHugePages * kPageSize;
inline HugeIndex huge_of(PageIndex page) { return page / kHugePages; }
inline PageIndex first_page(HugeIndex huge) { return huge * kHugePages; }

// A set of pages of a huge page.
class HugeBits {
 public:
  bool has(unsigned page) const { return (words_[page / 64] >> page % 64 & 1) != 0; }
  void set(unsigned page) { words_[page / 64] |= uint64_t{1} << page % 64; }
  unsigned count() const {
    unsigned sum = 0;
    for (uint64_t w : words_) sum += static_cast<unsigned>(std::popcount(w));
    return sum;
  }
  bool is_full() const { return count() == kHugePages; }

 private:
  uint64_t words_[kHugePages / 64] = {};
};

class HugeTable {
 public:
  static constexpr uint32_t kQueued = 1u << 0;      // has an entry in the HugeQueue
  static constexpr uint32_t kAdviseHuge = 1u << 1;  // MADV_HUGEPAGE
  static constexpr uint32_t kAdviseNone = 1u << 2;  // MADV_NOHUGEPAGE
  static constexpr uint32_t kSequential = 1u << 3;  // MADV_SEQUENTIAL: a stream is expected
  static constexpr uint32_t kWritten = 1u << 4;     // was fetched for reads in its last stay, and then written
  static constexpr uint32_t kRefused = 1u << 5;     // the kernel did not move its frame: it goes by pages
  static constexpr uint32_t kDense = 1u << 6;       // most of its pages were used (huge_density.h)

  explicit HugeTable(uint64_t pages)
      : count_(pages / kHugePages),
        flags_(static_cast<std::atomic<uint32_t>*>(os::map_near(count_ * sizeof(uint32_t)))),
        uses_(static_cast<std::atomic<uint32_t>*>(os::map_near(count_ * sizeof(uint32_t)))),
        fetched_(static_cast<Pages*>(os::map_near(count_ * sizeof(Pages)))),
        sums_(static_cast<std::atomic<uint64_t*>*>(os::map_near(count_ * sizeof(uint64_t*)))) {
    if (!flags_ || !uses_ || !fetched_ || !sums_)
      die("cannot reserve a table of {} huge pages; lower --tune space or raise the limit on virtual memory", count_);
  }
  ~HugeTable() {
    for (uint64_t e = 0; e < used_.load(); e++) drop_sums(static_cast<HugeIndex>(e));
    os::unmap(flags_, count_ * sizeof(uint32_t));
    os::unmap(uses_, count_ * sizeof(uint32_t));
    os::unmap(fetched_, count_ * sizeof(Pages));
    os::unmap(sums_, count_ * sizeof(uint64_t*));
  }
  HugeTable(const HugeTable&) = delete;
  HugeTable& operator=(const HugeTable&) = delete;

  uint64_t count() const { return count_; }
  bool has(HugeIndex huge, uint32_t flag) const { return (flags_[huge].load(std::memory_order_acquire) & flag) != 0; }
  // Return whether the flag was set before.
  bool set(HugeIndex huge, uint32_t flag) {
    return (flags_[huge].fetch_or(flag, std::memory_order_acq_rel) & flag) != 0;
  }
  bool clear(HugeIndex huge, uint32_t flag) {
    return (flags_[huge].fetch_and(~flag, std::memory_order_acq_rel) & flag) != 0;
  }

  // For HugeDensity, which gives it its meaning.
  uint32_t use(HugeIndex huge) const { return uses_[huge].load(std::memory_order_relaxed); }
  void set_use(HugeIndex huge, uint32_t use) { uses_[huge].store(use, std::memory_order_relaxed); }

  // Adds those of the pages that belong to the huge page to the set of those that came. Returns how many are in it.
  unsigned add_fetched(HugeIndex huge, std::span<const PageIndex> pages) {
    Pages& set = fetched_[huge];
    for (PageIndex page : pages) {
      if (huge_of(page) != huge) continue;
      std::atomic<uint64_t>& word = set.words[page % kHugePages / 64];
      word.store(word.load(std::memory_order_relaxed) | uint64_t{1} << page % 64, std::memory_order_relaxed);
    }
    unsigned sum = 0;
    for (auto& word : set.words) sum += static_cast<unsigned>(std::popcount(word.load(std::memory_order_relaxed)));
    return sum;
  }
  void clear_fetched(HugeIndex huge) {
    for (auto& word : fetched_[huge].words) word.store(0, std::memory_order_relaxed);
  }

  // What the program advised, how it used it, and what the kernel refused: for memory that is mapped anew.
  void forget_advice(HugeIndex huge) {
    constexpr uint32_t kAll = kAdviseHuge | kAdviseNone | kSequential | kWritten | kRefused | kDense;
    if (has(huge, kAll)) clear(huge, kAll);
  }

  // The sums of the huge page's pages as they were fetched, or nullptr. That of a page is valid while its word has
  // kHuge. Only the owner of all pages of the huge page reads, sets and drops them.
  uint64_t* sums(HugeIndex huge) const { return sums_[huge].load(std::memory_order_acquire); }
  void set_sums(HugeIndex huge, uint64_t* sums) {
    free_sums(sums_[huge].exchange(sums, std::memory_order_acq_rel));
    uint64_t used = used_.load(std::memory_order_relaxed);
    while (sums && used <= huge && !used_.compare_exchange_weak(used, uint64_t{huge} + 1)) {}
  }
  void drop_sums(HugeIndex huge) { set_sums(huge, nullptr); }
  static uint64_t* make_sums() { return static_cast<uint64_t*>(near_alloc(kHugePages * sizeof(uint64_t))); }
  static void free_sums(uint64_t* sums) { near_free(sums, kHugePages * sizeof(uint64_t)); }

 private:
  struct Pages {
    std::atomic<uint64_t> words[kHugePages / 64];
  };

  uint64_t count_;
  std::atomic<uint32_t>* flags_;
  std::atomic<uint32_t>* uses_;
  Pages* fetched_;
  std::atomic<uint64_t*>* sums_;
  std::atomic<uint64_t> used_{0};  // huge pages from here on never had sums
};

}  // namespace farside::pager
