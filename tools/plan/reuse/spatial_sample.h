// Spatial sampling (SHARDS, FAST'15): a key is sampled if its hash is below a threshold. A key is thus sampled always
// or never, and reuse among the sampled keys is reuse among all keys at a smaller scale. The sample has a maximum size:
// when it is exceeded the threshold is lowered, and keys above it are removed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace farside::plan {

class SpatialSample {
 public:
  // The sampled keys are divided into groups by other bits of the hash. Each group is a sample by itself; the spread
  // between the groups gives the error of the whole.
  static constexpr unsigned kGroups = 16;

  explicit SpatialSample(size_t max_keys) : max_keys_(max_keys) {}

  struct Place {
    bool sampled;
    unsigned group;
  };
  Place place(uint64_t key) const {
    uint64_t hash = mix(key);
    return {hash >> kGroupBits < threshold_, static_cast<unsigned>(hash % kGroups)};
  }

  // Adds a sampled key that is not in the sample. Returns the keys that are removed now, perhaps itself.
  std::vector<uint64_t> add(uint64_t key);

  // The share of all keys that is sampled, and the number of keys for which each sampled one stands.
  double rate() const { return static_cast<double>(threshold_) / static_cast<double>(kEverything); }
  double weight() const { return 1 / rate(); }
  size_t keys() const { return highest_.size(); }

  // The factor for the variance of a sum over the groups' estimates (finite population correction): 0 if everything is
  // sampled.
  double unseen() const { return (1 - rate()) / (1 - rate() / kGroups); }

 private:
  static constexpr unsigned kGroupBits = 16;
  static constexpr uint64_t kEverything = uint64_t{1} << (64 - kGroupBits);

  static uint64_t mix(uint64_t key) {
    key = (key + 1) * 0x9E3779B97F4A7C15u;
    key = (key ^ key >> 32) * 0xD6E8FEB86659FD93u;
    key = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    return key ^ key >> 32;
  }

  struct SampledKey {
    uint64_t value, key;
    bool operator<(const SampledKey& other) const { return value < other.value; }
  };
  size_t max_keys_;
  uint64_t threshold_ = kEverything;
  std::priority_queue<SampledKey> highest_;
};

}  // namespace farside::plan
