// A Fenwick tree: sums over a prefix of an array of counts, and changes of single counts, each in time logarithmic in
// the length.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace farside::plan {

class Fenwick {
 public:
  Fenwick() = default;
  // The first `ones` counts are 1, the others 0.
  Fenwick(size_t length, size_t ones) : nodes_(length + 1) {
    for (size_t i = 1; i <= length; i++) {
      nodes_[i] += i <= ones ? 1 : 0;
      size_t above = i + lowest_bit(i);
      if (above <= length) nodes_[above] += nodes_[i];
    }
  }

  size_t length() const { return nodes_.empty() ? 0 : nodes_.size() - 1; }

  void add(size_t at, int32_t change) {
    for (size_t i = at + 1; i < nodes_.size(); i += lowest_bit(i)) nodes_[i] += static_cast<uint32_t>(change);
  }

  // The sum of the counts from 0 to `at`, inclusive.
  uint32_t sum(size_t at) const {
    uint32_t all = 0;
    for (size_t i = at + 1; i > 0; i -= lowest_bit(i)) all += nodes_[i];
    return all;
  }

 private:
  static size_t lowest_bit(size_t i) { return i & (~i + 1); }
  std::vector<uint32_t> nodes_;  // node i holds the sum of the lowest_bit(i) counts that end at i - 1
};

}  // namespace farside::plan
