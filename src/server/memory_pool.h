// All regions of a server: who may attach to which, how much each has reserved, and when their memory is freed.
// A region lives as long as it has a connection or an overlay. Thread-safe.
#pragma once
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "server/region.h"

namespace farside::server {

class MemoryPool {
 public:
  MemoryPool(uint64_t capacity, uint64_t quota) : account_(capacity), quota_(quota) {}

  // Each returns a region with one connection more, which release() takes back.
  Result<Region*> create(uint64_t bytes);
  Result<Region*> attach(uint64_t id, const uint8_t* secret);
  Result<Region*> snapshot(uint64_t id, const uint8_t* secret);
  void release(Region* region);

  // `bytes` is a multiple of the slab size. Both return the reservation afterwards.
  Result<uint64_t> grow(Region* region, uint64_t bytes);
  uint64_t shrink(Region* region, uint64_t bytes);

  struct Usage {
    uint64_t capacity, charged, stored, regions, snapshots;
  };
  Usage usage();

 private:
  using Doomed = std::vector<std::unique_ptr<Region>>;

  Region* find(uint64_t id, const uint8_t* secret);
  Region* add(std::unique_ptr<Region> region);
  void reap(Region* region, Doomed* doomed);
  void settle_all();
  Region::Name new_name();

  Account account_;
  const uint64_t quota_;  // of one region; 0: none

  std::mutex mutex_;  // guards what follows; taken before any family lock
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Region>> regions_;
};

// Compares without telling by its duration where the difference is.
bool same_secret(const void* a, const void* b, size_t bytes);

}  // namespace farside::server
