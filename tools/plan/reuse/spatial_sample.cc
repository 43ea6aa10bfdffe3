#include "tools/plan/reuse/spatial_sample.h"

namespace farside::plan {

std::vector<uint64_t> SpatialSample::add(uint64_t key) {
  highest_.push({mix(key) >> kGroupBits, key});
  std::vector<uint64_t> left_out;
  if (highest_.size() <= max_keys_) return left_out;
  threshold_ = highest_.top().value;
  while (!highest_.empty() && highest_.top().value >= threshold_) {
    left_out.push_back(highest_.top().key);
    highest_.pop();
  }
  return left_out;
}

}  // namespace farside::plan
