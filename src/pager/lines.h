// Which lines of a page differ from an older copy of it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace farside::pager {

inline constexpr unsigned kPageLines = kPageSize / kCacheLine;
static_assert(kPageLines == 64, "a bit for each in one word");

// All of kPageSize bytes, aligned to a line; `next` is what a coming call compares with, and is fetched into the cache
// meanwhile. About 0.1 us where all are in the cache. With the widest vectors that this processor has, chosen at the
// first call. Async-signal-safe.
uint64_t changed_lines(const std::byte* now, const std::byte* before, const std::byte* next);

// The same without vectors, for other processors; public for tests.
uint64_t changed_lines_portable(const std::byte* now, const std::byte* before, const std::byte* next);

// How many runs of set bits there are.
inline unsigned runs_in(uint64_t lines) { return static_cast<unsigned>(__builtin_popcountll(lines & ~(lines << 1))); }

// Calls run(first line, lines) for each run of set bits.
template <typename Run>
void for_each_run(uint64_t lines, Run run) {
  while (lines != 0) {
    auto first = static_cast<unsigned>(__builtin_ctzll(lines));
    uint64_t rest = ~(lines >> first);
    unsigned count = rest == 0 ? 64 : static_cast<unsigned>(__builtin_ctzll(rest));
    run(first, count);
    if (first + count == 64) return;
    lines &= ~uint64_t{0} << (first + count);
  }
}

}  // namespace farside::pager
