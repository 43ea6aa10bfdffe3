// How many writes and discards of each place of far memory have begun, and how many of them have ended. By these a
// repair knows that it copied a place while nothing wrote it. Places share counters where far memory is large, which
// makes a repair wait, never err. In near memory. Lock-free, and for use during a fault.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/near.h"

namespace farside::remote {

class WriteCounts {
 public:
  static constexpr uint64_t kPlaceBytes = 256 * 1024;  // what a repair copies at a time

  WriteCounts() : counts_(static_cast<Count*>(near_alloc(kCounts * sizeof(Count)))) {}
  ~WriteCounts() { near_free(counts_, kCounts * sizeof(Count)); }
  WriteCounts(const WriteCounts&) = delete;
  WriteCounts& operator=(const WriteCounts&) = delete;

  // A write counts as begun before its servers are chosen, and as ended when all of them have acknowledged it or are
  // lost. Sequentially consistent with changes of the table of slabs: a repair that does not see a write begin is seen
  // by that write.
  void begin(uint64_t far, uint64_t bytes) {
    for_each(far, bytes, [](Count& count) { count.begun.fetch_add(1, std::memory_order_seq_cst); });
  }
  void end(uint64_t far, uint64_t bytes) {
    for_each(far, bytes, [](Count& count) { count.ended.fetch_add(1, std::memory_order_seq_cst); });
  }

  // Whether no write of the place at `far` is in flight. *begun: how many have begun until then.
  bool is_quiet(uint64_t far, uint32_t* begun) const {
    const Count& count = at(far / kPlaceBytes);
    uint32_t ended = count.ended.load(std::memory_order_seq_cst);  // first: it never exceeds the other
    *begun = count.begun.load(std::memory_order_seq_cst);
    return *begun == ended;
  }
  // In a forked child, which does not end what other threads of its parent began.
  void reset_in_child() {
    for (uint64_t i = 0; i < kCounts; i++) counts_[i].ended.store(counts_[i].begun.load());
  }
  uint32_t begun(uint64_t far) const { return at(far / kPlaceBytes).begun.load(std::memory_order_seq_cst); }

 private:
  static constexpr uint64_t kCounts = 4096;
  struct Count {  // initially zero, as near memory is
    std::atomic<uint32_t> begun, ended;
  };

  Count& at(uint64_t place) const { return counts_[place % kCounts]; }
  template <typename Visit>
  void for_each(uint64_t far, uint64_t bytes, Visit visit) {
    uint64_t first = far / kPlaceBytes, places = (far + bytes - 1) / kPlaceBytes - first + 1;
    for (uint64_t i = 0; i < std::min(places, kCounts); i++) visit(at(first + i));
  }

  Count* const counts_;
};

}  // namespace farside::remote
