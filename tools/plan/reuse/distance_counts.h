// A histogram of reuse distances: exact to 127, then 64 steps per doubling.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace farside::plan {

class DistanceCounts {
 public:
  void add(uint64_t distance, double weight) {
    size_t step = step_of(distance);
    if (step >= steps_.size()) steps_.resize(step + 1);
    Step& s = steps_[step];
    s.count += weight;
    s.first = std::min(s.first, distance);
    s.end = std::max(s.end, distance + 1);
  }

  // Accesses that miss in an LRU cache of that many keys: those with this distance or a longer one. Interpolates within
  // a step.
  double beyond(double keys) const {
    double sum = 0;
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step& s = steps_[i];
      auto first = static_cast<double>(s.first), end = static_cast<double>(s.end);
      if (s.count == 0 || end <= keys) continue;
      sum += first >= keys ? s.count : s.count * (end - keys) / (end - first);
    }
    return sum;
  }

 private:
  static constexpr unsigned kStepBits = 6;
  static constexpr uint64_t kSteps = 1 << kStepBits, kExact = 2 * kSteps;

  static size_t step_of(uint64_t distance) {
    if (distance < kExact) return distance;
    auto doublings = static_cast<unsigned>(std::bit_width(distance)) - kStepBits - 1;
    return doublings * kSteps + (distance >> doublings);
  }
  struct Step {
    double count = 0;
    uint64_t first = UINT64_MAX,
             end = 0;  // of the distances added, so that the step that a loop makes in the curve stays sharp
  };
  std::vector<Step> steps_;
};

}  // namespace farside::plan
