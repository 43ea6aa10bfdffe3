// The changes of a page, and their sums. Pure computation.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace farside::track {

inline constexpr unsigned kLinesPerPage = kPageSize / kCacheLine;
inline constexpr uint64_t kBlockSize = 2 * kMiB;
static_assert(kLinesPerPage == 64, "the lines of a page are the bits of a word");

// Changed bytes and, as a bit mask, changed lines (bit n: line n of the page).
struct PageChange {
  uint64_t bytes = 0;
  uint64_t lines = 0;
};

PageChange compare_page(const std::byte* before, const std::byte* now);

// Entry n - 1 counts the items of length n.
using Histogram = std::array<uint64_t, kLinesPerPage>;

// Sums of changes. A line, page or block is dirty if at least one of its bytes changed. Pages are added in order of
// addresses.
struct Changes {
  uint64_t bytes = 0, lines = 0, pages = 0, blocks = 0;
  uint64_t written_pages = 0;     // pages with a write, even if it changed nothing
  uint64_t uncompared_pages = 0;  // written, but their previous content is not known
  uint64_t vanished_pages = 0;    // written, and unmapped before they were read
  Histogram lines_per_page = {};
  Histogram run_lengths = {};  // lengths of runs of changed lines within a page

  void add(uint64_t address, const PageChange& change);
  void add(const Changes& other);  // adds another window; a block that is dirty in both counts twice

  uint64_t silent_pages() const;                     // written pages without a change, as far as known
  uint64_t dirty_bytes(uint64_t granularity) const;  // 64, 4096 or 2 MiB
  double amplification(uint64_t granularity) const;  // dirty bytes / changed bytes; 0 if nothing changed

 private:
  uint64_t last_block_ = UINT64_MAX;
};

inline constexpr std::array<uint64_t, 3> kGranularities = {kCacheLine, kPageSize, kBlockSize};

// The share of items of length n or less, for n from 1 to 64; all 0 if the histogram is empty.
std::array<double, kLinesPerPage> cumulate(const Histogram& histogram);

// The smallest length such that at least `share` of all items are not longer; 0 if the histogram is empty.
unsigned quantile_of(const Histogram& histogram, double share);

}  // namespace farside::track
