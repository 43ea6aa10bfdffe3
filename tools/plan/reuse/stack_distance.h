// Reuse distances: the number of other keys accessed since the last access to a key. An LRU cache of c keys holds the
// key if and only if its distance is below c (Mattson).
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "tools/plan/reuse/fenwick.h"

namespace farside::plan {

// Exact. Each key has a mark at the time of its last access; the marks after it are the keys accessed since. Times are
// renumbered when they are used up, so that memory is proportional to the number of keys, not of accesses.
class StackDistance {
 public:
  static constexpr uint64_t kFirst = UINT64_MAX;  // the first access to the key

  uint64_t access(uint64_t key);
  void forget(uint64_t key);
  size_t keys() const { return last_.size(); }

 private:
  void renumber();

  std::unordered_map<uint64_t, uint32_t> last_;  // key -> time of its last access
  Fenwick marks_;
  uint32_t now_ = 0;
};

}  // namespace farside::plan
