// Reuse distances: how many other keys were accessed since the last access to this one. An LRU cache of c keys holds
// the key if and only if its distance is below c (Mattson).
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "cli/plan/reuse/fenwick.h"

namespace farside::cli::plan {

// Exact. Each key has a mark at the time of its last access; the marks after it are the keys accessed since. Times are
// given out anew when they run out, so memory follows the number of keys and not of accesses.
class StackDistance {
 public:
  static constexpr uint64_t kFirst = UINT64_MAX;  // the key was not there before

  uint64_t access(uint64_t key);
  void forget(uint64_t key);
  size_t keys() const { return last_.size(); }

 private:
  void renumber();

  std::unordered_map<uint64_t, uint32_t> last_;  // time of its last access
  Fenwick marks_;
  uint32_t now_ = 0;
};

}  // namespace farside::cli::plan
