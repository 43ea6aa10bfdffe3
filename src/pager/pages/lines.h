// Finds the cache lines in which a page differs from an older copy of it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace farside::pager {

inline constexpr unsigned kPageLines = kPageSize / kCacheLine;
static_assert(kPageLines == 64, "a bit for each in one word");

// Returns a bit for each line in which `now` and `before` differ. All three are kPageSize bytes, aligned to a cache
// line. `next` is the copy with which the next call will compare; it is prefetched into the cache. About 0.1 us if all
// data is in the cache. Uses the widest vectors of this processor, chosen at the first call. Async-signal-safe.
uint64_t changed_lines(const std::byte* now, const std::byte* before, const std::byte* next);

// The same without vector instructions, for other processors. Public for tests.
uint64_t changed_lines_portable(const std::byte* now, const std::byte* before, const std::byte* next);

// The number of runs of set bits.
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
