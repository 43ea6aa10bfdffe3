// Allocates ranges of far addresses: first fit from the low end, so that the used part of the page table stays small.
// Its data is in near memory. Not thread-safe. Cost: a walk over the free ranges and an update of a tree.
#pragma once
#include <cstdint>
#include <map>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"

namespace farside::pager {

class SpaceAllocator {
 public:
  SpaceAllocator(uint64_t begin, uint64_t end) { free_.emplace(begin, end); }

  // Returns the address, or 0 if no free range fits. bytes and alignment: multiples of the page size.
  uint64_t take(uint64_t bytes, uint64_t alignment) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      uint64_t address = align_up(it->first, alignment);
      if (address + bytes > it->second || address + bytes < address) continue;
      cut(it, address, address + bytes);
      return address;
    }
    return 0;
  }

  // Takes exactly [begin, end) if all of it is free.
  bool take_exactly(uint64_t begin, uint64_t end) {
    auto it = free_.upper_bound(begin);
    if (it == free_.begin()) return false;
    --it;
    if (it->second < end) return false;
    cut(it, begin, end);
    return true;
  }

  // Frees [begin, end), and joins it with free neighbours.
  void give(uint64_t begin, uint64_t end) {
    auto next = free_.lower_bound(begin);
    FARSIDE_CHECK(begin < end && (next == free_.end() || next->first >= end));
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      FARSIDE_CHECK(previous->second <= begin);
      if (previous->second == begin) {
        begin = previous->first;
        free_.erase(previous);
      }
    }
    if (next != free_.end() && next->first == end) {
      end = next->second;
      free_.erase(next);
    }
    free_.emplace(begin, end);
  }

  // End of the highest allocated range; everything above it was never used, or is free again.
  uint64_t used_end(uint64_t space_end) const {
    if (free_.empty()) return space_end;
    auto last = std::prev(free_.end());
    return last->second == space_end ? last->first : space_end;
  }

  bool is_valid() const {
    uint64_t last_end = 0;
    for (auto [begin, end] : free_) {
      if (begin >= end || (last_end != 0 && begin <= last_end)) return false;
      last_end = end;
    }
    return true;
  }

 private:
  using Ranges = std::map<uint64_t, uint64_t, std::less<>, NearAllocator<std::pair<const uint64_t, uint64_t>>>;

  void cut(Ranges::iterator it, uint64_t begin, uint64_t end) {
    uint64_t free_begin = it->first, free_end = it->second;
    FARSIDE_CHECK(free_begin <= begin && begin < end && end <= free_end);
    free_.erase(it);
    if (free_begin < begin) free_.emplace(free_begin, begin);
    if (end < free_end) free_.emplace(end, free_end);
  }

  Ranges free_;  // begin -> end; disjoint, never touching
};

}  // namespace farside::pager
