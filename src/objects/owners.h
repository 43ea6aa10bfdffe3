// The owner of the object in a slot: the header in its page or, where that is out of date, an override in near memory.
// An owner's address changes when the owner is moved, or the object around it is. If the object's page is far or clean
// then, writing the header would fetch or dirty the page; an override is stored instead, until the object moves or is
// destroyed.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "base/log.h"
#include "base/near.h"
#include "base/sync.h"
#include "objects/segment.h"

namespace farside::objects {

// Maps (page, slot) to an owner's address. Thread-safe; not async-signal-safe. A segment counts its overrides, so a
// look-up in a segment without any takes no lock.
class OwnerOverrides : public NearObject {
 public:
  void put(PageIndex page, unsigned slot, uint64_t* owner, Segment& segment) {
    Shard& shard = shard_of(page);
    LockGuard guard(shard.lock);
    auto [it, fresh] = shard.owners.insert_or_assign(key(page, slot), owner);
    if (fresh) segment.owner_overrides.fetch_add(1, std::memory_order_acq_rel);
  }
  void remove(PageIndex page, unsigned slot, Segment& segment) {
    if (segment.owner_overrides.load(std::memory_order_acquire) == 0) return;
    Shard& shard = shard_of(page);
    LockGuard guard(shard.lock);
    if (shard.owners.erase(key(page, slot)) == 0) return;
    uint16_t before = segment.owner_overrides.fetch_sub(1, std::memory_order_acq_rel);
    FARSIDE_CHECK(before > 0);
  }
  // nullptr: there is none.
  uint64_t* find(PageIndex page, unsigned slot, const Segment& segment) {
    if (segment.owner_overrides.load(std::memory_order_acquire) == 0) return nullptr;
    Shard& shard = shard_of(page);
    LockGuard guard(shard.lock);
    auto it = shard.owners.find(key(page, slot));
    return it == shard.owners.end() ? nullptr : it->second;
  }

 private:
  static constexpr size_t kShards = 64;
  using Map = std::unordered_map<uint64_t, uint64_t*, std::hash<uint64_t>, std::equal_to<uint64_t>,
                                 NearAllocator<std::pair<const uint64_t, uint64_t*>>>;
  struct alignas(kCacheLine) Shard {
    SpinLock lock;
    Map owners GUARDED_BY(lock);
  };
  static uint64_t key(PageIndex page, unsigned slot) { return uint64_t{page} << 8 | slot; }
  Shard& shard_of(PageIndex page) { return shards_[page % kShards]; }
  Shard shards_[kShards];
};

}  // namespace farside::objects
