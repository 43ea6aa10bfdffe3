// Which keys are looked at: those whose hash lies below a threshold, so that a key is looked at always or never, and
// reuse among the sampled ones is reuse among all, on a smaller scale (SHARDS, FAST'15). Of fixed size: when there are
// too many, the threshold falls, and those above it are left out from then on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace farside::cli::plan {

class SpatialSample {
 public:
  // The sampled keys are divided among so many groups by other bits of the hash: each is a sample of its own, and how
  // far they differ tells the error of them all.
  static constexpr unsigned kGroups = 16;

  explicit SpatialSample(size_t most) : most_(most) {}

  struct Place {
    bool sampled;
    unsigned group;
  };
  Place place(uint64_t key) const {
    uint64_t hash = mix(key);
    return {hash >> kGroupBits < threshold_, static_cast<unsigned>(hash % kGroups)};
  }

  // Enters a sampled key that was not there. Returns the keys that are to be left out now, perhaps itself among them.
  std::vector<uint64_t> add(uint64_t key);

  // The part of all keys that is sampled, and how many accesses each sampled one stands for.
  double rate() const { return static_cast<double>(threshold_) / static_cast<double>(kEverything); }
  double weight() const { return 1 / rate(); }
  size_t keys() const { return highest_.size(); }

  // What the variance of a sum over the groups' estimates is to be multiplied with, as the groups leave less and less
  // unseen the larger they are: 0 if everything is sampled.
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

  struct Entry {
    uint64_t value, key;
    bool operator<(const Entry& other) const { return value < other.value; }
  };
  size_t most_;
  uint64_t threshold_ = kEverything;
  std::priority_queue<Entry> highest_;
};

}  // namespace farside::cli::plan
