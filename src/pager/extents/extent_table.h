// What is kept for each extent: 512 pages of far space that may share one huge frame. The page words have the states of
// its pages; this table has what concerns all of them.
//
// Thread-safe and async-signal-safe. Populated by the kernel when touched: 16 bytes for 2 MiB.
#pragma once
#include <atomic>
#include <bit>
#include <utility>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "base/os.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

using ExtentIndex = uint32_t;  // page number / 512

inline constexpr unsigned kExtentPages = 512;
inline constexpr uint64_t kExtentBytes = kExtentPages * kPageSize;
inline ExtentIndex extent_of(PageIndex page) { return page / kExtentPages; }
inline PageIndex first_page(ExtentIndex extent) { return extent * kExtentPages; }

// A set of pages of an extent.
class ExtentBits {
 public:
  bool has(unsigned page) const { return (words_[page / 64] >> page % 64 & 1) != 0; }
  void set(unsigned page) { words_[page / 64] |= uint64_t{1} << page % 64; }
  unsigned count() const {
    unsigned sum = 0;
    for (uint64_t w : words_) sum += static_cast<unsigned>(std::popcount(w));
    return sum;
  }
  bool is_full() const { return count() == kExtentPages; }

 private:
  uint64_t words_[kExtentPages / 64] = {};
};

class ExtentTable {
 public:
  static constexpr uint32_t kQueued = 1u << 0;      // has an entry in the ExtentQueue
  static constexpr uint32_t kAdviseHuge = 1u << 1;  // MADV_HUGEPAGE
  static constexpr uint32_t kAdviseNone = 1u << 2;  // MADV_NOHUGEPAGE
  static constexpr uint32_t kSequential = 1u << 3;  // MADV_SEQUENTIAL: a stream is expected
  static constexpr uint32_t kWritten = 1u << 4;     // was fetched for reads in its last stay, and then written
  static constexpr uint32_t kRefused = 1u << 5;     // the kernel did not move its frame: it goes by pages
  static constexpr uint32_t kDense = 1u << 6;       // most of its pages were used (extent_density.h)

  explicit ExtentTable(uint64_t pages)
      : count_(pages / kExtentPages),
        flags_(static_cast<std::atomic<uint32_t>*>(os::map_near(count_ * sizeof(uint32_t)))),
        uses_(static_cast<std::atomic<uint32_t>*>(os::map_near(count_ * sizeof(uint32_t)))),
        sums_(static_cast<std::atomic<uint64_t*>*>(os::map_near(count_ * sizeof(uint64_t*)))) {
    if (!flags_ || !uses_ || !sums_)
      die("cannot reserve a table of {} extents; lower --space or raise the limit on virtual memory", count_);
  }
  ~ExtentTable() {
    for (uint64_t e = 0; e < used_.load(); e++) drop_sums(static_cast<ExtentIndex>(e));
    os::unmap(flags_, count_ * sizeof(uint32_t));
    os::unmap(uses_, count_ * sizeof(uint32_t));
    os::unmap(sums_, count_ * sizeof(uint64_t*));
  }
  ExtentTable(const ExtentTable&) = delete;
  ExtentTable& operator=(const ExtentTable&) = delete;

  uint64_t count() const { return count_; }
  bool has(ExtentIndex extent, uint32_t flag) const {
    return (flags_[extent].load(std::memory_order_acquire) & flag) != 0;
  }
  // Return whether the flag was set before.
  bool set(ExtentIndex extent, uint32_t flag) {
    return (flags_[extent].fetch_or(flag, std::memory_order_acq_rel) & flag) != 0;
  }
  bool clear(ExtentIndex extent, uint32_t flag) {
    return (flags_[extent].fetch_and(~flag, std::memory_order_acq_rel) & flag) != 0;
  }

  // For ExtentDensity, which gives it its meaning.
  uint32_t use(ExtentIndex extent) const { return uses_[extent].load(std::memory_order_relaxed); }
  void set_use(ExtentIndex extent, uint32_t use) { uses_[extent].store(use, std::memory_order_relaxed); }

  // What the program advised, how it used it, and what the kernel refused: for memory that is mapped anew.
  void forget_advice(ExtentIndex extent) {
    constexpr uint32_t kAll = kAdviseHuge | kAdviseNone | kSequential | kWritten | kRefused | kDense;
    if (has(extent, kAll)) clear(extent, kAll);
  }

  // The sums of the extent's pages as they were fetched, or nullptr. That of a page is valid while its word has
  // kExtent. Only the owner of all pages of the extent reads, sets and drops them.
  uint64_t* sums(ExtentIndex extent) const { return sums_[extent].load(std::memory_order_acquire); }
  void set_sums(ExtentIndex extent, uint64_t* sums) {
    free_sums(sums_[extent].exchange(sums, std::memory_order_acq_rel));
    uint64_t used = used_.load(std::memory_order_relaxed);
    while (sums && used <= extent && !used_.compare_exchange_weak(used, uint64_t{extent} + 1)) {}
  }
  void drop_sums(ExtentIndex extent) { set_sums(extent, nullptr); }
  static uint64_t* make_sums() { return static_cast<uint64_t*>(near_alloc(kExtentPages * sizeof(uint64_t))); }
  static void free_sums(uint64_t* sums) { near_free(sums, kExtentPages * sizeof(uint64_t)); }

 private:
  uint64_t count_;
  std::atomic<uint32_t>* flags_;
  std::atomic<uint32_t>* uses_;
  std::atomic<uint64_t*>* sums_;
  std::atomic<uint64_t> used_{0};  // extents from here on never had sums
};

}  // namespace farside::pager
