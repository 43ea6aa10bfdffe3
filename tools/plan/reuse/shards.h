// The miss-ratio curve of LRU caches of all sizes, from one pass over the accesses, in bounded memory: SHARDS with a
// fixed sample size (FAST'15). The error is estimated from groups of the sample, each with its own reuse distances.
#pragma once
#include <array>
#include <cstdint>

#include "tools/plan/reuse/distance_counts.h"
#include "tools/plan/reuse/spatial_sample.h"
#include "tools/plan/reuse/stack_distance.h"

namespace farside::plan {

// A value with its standard error.
struct Estimate {
  double value = 0, error = 0;
};
// Half the width of a 95 % interval in standard errors: Student's t for kGroups - 1 degrees of freedom.
inline constexpr double kInterval95 = 2.131;
// The standard error, from one estimate per group. `unseen`: SpatialSample::unseen().
double error_of(const std::array<double, SpatialSample::kGroups>& estimates, double unseen);

class Shards {
 public:
  explicit Shards(size_t max_blocks) : sample_(max_blocks) {}

  void access(uint64_t block);
  // Further accesses to the last accessed block: they hit at any size.
  void again(uint64_t accesses) { accesses_ += static_cast<double>(accesses); }

  double accesses() const { return accesses_; }
  double blocks() const { return static_cast<double>(sample_.keys()) * sample_.weight(); }  // accessed blocks
  double rate() const { return sample_.rate(); }

  // Accesses that miss in a cache of that many blocks, without the first access to each block.
  Estimate misses(double blocks) const;

 private:
  struct Curve {
    StackDistance stack;
    DistanceCounts counts;
    void access(uint64_t block, double weight);
  };

  SpatialSample sample_;
  Curve all_;
  std::array<Curve, SpatialSample::kGroups> groups_;
  double accesses_ = 0;
};

}  // namespace farside::plan
