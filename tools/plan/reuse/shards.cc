#include "tools/plan/reuse/shards.h"

#include <cmath>
#include <numeric>

namespace farside::plan {

double error_of(const std::array<double, SpatialSample::kGroups>& estimates, double unseen) {
  constexpr double kGroups = SpatialSample::kGroups;
  double mean = std::accumulate(estimates.begin(), estimates.end(), 0.0) / kGroups, squares = 0;
  for (double estimate : estimates) squares += (estimate - mean) * (estimate - mean);
  return std::sqrt(squares / (kGroups - 1) / kGroups * unseen);
}

// A distance among sampled blocks stands for one that is `weight` times as long among all blocks.
void Shards::Curve::access(uint64_t block, double weight) {
  uint64_t distance = stack.access(block);
  if (distance == StackDistance::kFirst) return;
  counts.add(static_cast<uint64_t>(std::llround(static_cast<double>(distance) * weight)), weight);
}

void Shards::access(uint64_t block) {
  accesses_++;
  SpatialSample::Place place = sample_.place(block);
  if (!place.sampled) return;
  size_t before = all_.stack.keys();
  all_.access(block, sample_.weight());
  groups_[place.group].access(block, sample_.weight() * SpatialSample::kGroups);
  if (all_.stack.keys() == before) return;
  for (uint64_t left_out : sample_.add(block)) {
    all_.stack.forget(left_out);
    groups_[sample_.place(left_out).group].stack.forget(left_out);
  }
}

Estimate Shards::misses(double blocks) const {
  std::array<double, SpatialSample::kGroups> estimates;
  for (size_t i = 0; i < estimates.size(); i++) estimates[i] = groups_[i].counts.beyond(blocks);
  return {all_.counts.beyond(blocks), error_of(estimates, sample_.unseen())};
}

}  // namespace farside::plan
