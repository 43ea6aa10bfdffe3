// Which servers hold which slab of far memory, and how much of each slab is in use. In near memory. servers() and
// holders() are lock-free and may be called during a fault; all other functions are for one thread at a time.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "remote/remote_store.h"

namespace farside::remote {

// One bit for each server of a store.
using ServerSet = uint32_t;
static_assert(kMaxServers <= 16);
constexpr ServerSet only(unsigned server) { return ServerSet{1} << server; }
// Calls visit(server) for each of the set.
template <typename Visit>
void for_each(ServerSet set, Visit visit) {
  for (; set != 0; set &= set - 1) visit(static_cast<unsigned>(std::countr_zero(set)));
}

// Of one slab.
//    63        32 31       16 15        0
//    +-----------+-----------+-----------+
//    |  version  |  joining  |  holders  |
//    +-----------+-----------+-----------+
struct alignas(8) SlabServers {
  uint16_t holders;  // have all of it; empty: none, and the slab reads as zeros
  uint16_t joining;  // get its writes, while a repair copies what was there before
  uint32_t version;  // changes with each change
  ServerSet all() const { return holders | joining; }
  bool operator==(const SlabServers&) const = default;
};
static_assert(sizeof(SlabServers) == 8 && std::atomic<SlabServers>::is_always_lock_free);

class SlabTable {
 public:
  explicit SlabTable(uint64_t region_bytes)
      : slabs_(align_up(region_bytes, kSlabBytes) / kSlabBytes),
        rows_(static_cast<Row*>(near_alloc(slabs_ * sizeof(Row)))) {}
  ~SlabTable() { near_free(rows_, slabs_ * sizeof(Row)); }
  SlabTable(const SlabTable&) = delete;
  SlabTable& operator=(const SlabTable&) = delete;

  static uint64_t slab_of(uint64_t far) { return far / kSlabBytes; }
  // The number of bytes from `far` that are in the same slab, at most `bytes`.
  static uint64_t bytes_in_slab(uint64_t far, uint64_t bytes) {
    return std::min(bytes, (slab_of(far) + 1) * kSlabBytes - far);
  }
  uint64_t slabs() const { return slabs_; }
  // No slab from here on was ever placed.
  uint64_t end() const { return end_.load(std::memory_order_acquire); }

  // Sequentially consistent with WriteCounts: see docs/internals/replicas.md.
  SlabServers servers(uint64_t slab) const { return rows_[slab].servers.load(std::memory_order_seq_cst); }
  ServerSet holders(uint64_t slab) const { return servers(slab).holders; }
  // The servers' entries in the store were published before, so that readers of servers() can use them.
  void place(uint64_t slab, ServerSet holders, ServerSet joining = 0) {
    if (slab >= end()) end_.store(slab + 1, std::memory_order_release);
    uint32_t version = servers(slab).version + 1;
    rows_[slab].servers.store({static_cast<uint16_t>(holders), static_cast<uint16_t>(joining), version},
                              std::memory_order_seq_cst);
  }

  uint32_t used(uint64_t slab) const { return rows_[slab].used; }
  void use(uint64_t slab, uint64_t bytes) { rows_[slab].used += static_cast<uint32_t>(bytes); }
  void unuse(uint64_t slab, uint64_t bytes) {
    FARSIDE_CHECK(rows_[slab].used >= bytes);
    rows_[slab].used -= static_cast<uint32_t>(bytes);
  }

 private:
  struct Row {  // initially zero, as near memory is
    std::atomic<SlabServers> servers;
    uint32_t used;
    uint32_t zero;
  };
  static_assert(sizeof(Row) == 16);

  const uint64_t slabs_;
  std::atomic<uint64_t> end_{0};
  Row* const rows_;
};

// Calls visit(slab, bytes) for each slab of a range, with the number of its bytes that are in the range.
template <typename Visit>
void for_each_slab(uint64_t far, uint64_t bytes, Visit visit) {
  for (uint64_t step; bytes > 0; far += step, bytes -= step) {
    step = SlabTable::bytes_in_slab(far, bytes);
    visit(SlabTable::slab_of(far), step);
  }
}

}  // namespace farside::remote
