// MAGE's ideal far memory (SOSP'25, section 3.1): a fetched page costs its thread the link's latency and nothing else,
// in fault and eviction alike, and the program ends with the thread that fetches most. What a run takes beyond it is
// the paging system's own.
#pragma once
#include <cstdint>

namespace farside {

struct Ideal {
  double local_s;     // of the program with all its memory local
  double latency_us;  // of the link, for a page
  double seconds(uint64_t busiest_fetches) const {
    return local_s + latency_us * 1e-6 * static_cast<double>(busiest_fetches);
  }
  // Throughput as a share of the local one.
  double throughput(uint64_t busiest_fetches) const { return local_s / seconds(busiest_fetches); }
};

}  // namespace farside
