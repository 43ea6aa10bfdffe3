// The miss-ratio curve of an LRU cache over any number of blocks, from one pass over the accesses, in bounded memory:
// SHARDS of fixed size. The error is told from groups of the sample, each with reuse distances of its own.
#pragma once
#include <array>
#include <cstdint>

#include "cli/plan/reuse/distance_counts.h"
#include "cli/plan/reuse/spatial_sample.h"
#include "cli/plan/reuse/stack_distance.h"

namespace farside::cli::plan {

// A figure with its standard error.
struct Estimate {
  double value = 0, error = 0;
};
// How many standard errors to both sides make a 95 % interval: Student's t for kGroups - 1 degrees of freedom.
inline constexpr double kInterval95 = 2.131;
// From one estimate of each group. `unseen` is SpatialSample::unseen().
double error_of(const std::array<double, SpatialSample::kGroups>& estimates, double unseen);

class Shards {
 public:
  explicit Shards(size_t most_blocks) : sample_(most_blocks) {}

  void access(uint64_t block);
  // Accesses to the block of the last access: they hit whatever the size.
  void again(uint64_t accesses) { accesses_ += static_cast<double>(accesses); }

  double accesses() const { return accesses_; }
  double blocks() const { return static_cast<double>(sample_.keys()) * sample_.weight(); }  // that were ever accessed
  double rate() const { return sample_.rate(); }

  // Accesses that miss in a cache of so many blocks; the first one to each block is not among them.
  Estimate misses(double blocks) const;

 private:
  struct Part {
    StackDistance stack;
    DistanceCounts counts;
    void access(uint64_t block, double weight);
  };

  SpatialSample sample_;
  Part all_;
  std::array<Part, SpatialSample::kGroups> groups_;
  double accesses_ = 0;
};

}  // namespace farside::cli::plan
