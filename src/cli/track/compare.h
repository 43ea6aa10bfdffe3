// What changed in a page, and sums of it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace farside::cli::track {

inline constexpr unsigned kLinesPerPage = kPageSize / kCacheLine;
inline constexpr uint64_t kBlockSize = 2 * kMiB;
static_assert(kLinesPerPage == 64, "the lines of a page are the bits of a word");

// Bit n is line n of the page.
struct PageChange {
  uint64_t bytes = 0;
  uint64_t lines = 0;
};

PageChange compare_page(const std::byte* before, const std::byte* now);

// Entry n - 1 counts what has length n.
using Histogram = std::array<uint64_t, kLinesPerPage>;

// Dirty is what holds at least one changed byte. Pages are added in order of addresses.
struct Changes {
  uint64_t bytes = 0, lines = 0, pages = 0, blocks = 0;
  uint64_t written_pages = 0;     // the kernel saw a write, also one that changed nothing
  uint64_t uncompared_pages = 0;  // written, but what they held before is not known
  uint64_t vanished_pages = 0;    // written, and unmapped before they could be read
  Histogram lines_per_page = {};
  Histogram run_lengths = {};  // lines in a row within a page

  void add(uint64_t address, const PageChange& change);
  void add(const Changes& other);  // of another window: a block that is dirty in both counts twice

  uint64_t silent_pages() const;                     // written without a change, as far as is known
  uint64_t dirty_bytes(uint64_t granularity) const;  // 64, 4096 or 2 MiB
  double amplification(uint64_t granularity) const;  // dirty bytes over changed bytes; 0 if nothing changed

 private:
  uint64_t last_block_ = UINT64_MAX;
};

inline constexpr std::array<uint64_t, 3> kGranularities = {kCacheLine, kPageSize, kBlockSize};

// The share of what has length n or less, for n from 1 to 64; all 0 if nothing was counted.
std::array<double, kLinesPerPage> cumulate(const Histogram& histogram);

// The least length that at least `share` of all have; 0 if nothing was counted.
unsigned quantile_of(const Histogram& histogram, double share);

}  // namespace farside::cli::track
