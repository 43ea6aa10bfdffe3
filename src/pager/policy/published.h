// Policies that Farside does not have, for comparison in the simulator: what operating systems and caches do that learn
// of every access. `Uses::kHidden`: as if they learned of faults only, as a pager does.
#pragma once
#include "pager/policy/simulator.h"

namespace farside::pager {

enum class Uses { kSeen, kHidden };

// The active and inactive list of Linux (mm/vmscan.c), with refault distance (mm/workingset.c).
Outcome simulate_kernel_lists(const Trace& trace, uint64_t near_pages);
// Adaptive replacement cache: N. Megiddo, D. S. Modha, FAST 2003.
Outcome simulate_arc(const Trace& trace, uint64_t near_pages, Uses uses);
// Three queues, first in, first out: J. Yang and others, SOSP 2023. The small queue has a tenth of the pages.
Outcome simulate_s3_fifo(const Trace& trace, uint64_t near_pages, Uses uses);

}  // namespace farside::pager
