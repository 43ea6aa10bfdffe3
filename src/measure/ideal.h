// The ideal far memory of MAGE (MAGE 3.1): a fetch costs its thread the latency of the link and nothing else, in fault
// and eviction alike. The program ends with the thread that fetches most. Time beyond that is the cost of the paging
// system.
#pragma once
#include <cstdint>

namespace farside {

struct Ideal {
  double local_s;     // time of the program with all its memory local
  double latency_us;  // of the link, per page
  double seconds(uint64_t busiest_fetches) const {
    return local_s + latency_us * 1e-6 * static_cast<double>(busiest_fetches);
  }
  // Throughput relative to a run with all memory local.
  double throughput(uint64_t busiest_fetches) const { return local_s / seconds(busiest_fetches); }
};

}  // namespace farside
