// Measures what this machine's processors and kernel take: the cost of moving a cache line, of a TLB shootdown, of a
// wake-up, of a 2 MiB frame that moves, and of a page that is copied.
#pragma once
#include <nlohmann/json.hpp>

#include "base/status.h"

namespace farside::bench::scaling {

// Restricts the calling thread, and the threads that it starts, to these cores.
void run_on(unsigned first, unsigned count);

// {"wake", "wake_latency", "line", "shootdown", "move", "copy"}, in us. For two cores or more.
Result<nlohmann::json> measure_machine();

}  // namespace farside::bench::scaling
