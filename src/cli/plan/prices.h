// What a miss costs: on Farside, measured here over several links; on published systems, as their papers tell.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/far_memory.h"
#include "cli/child.h"
#include "cli/plan/reuse/near_model.h"
#include "cli/run_settings.h"

namespace farside::cli::plan {

// Farside over a link. The prices are microseconds for each event, beyond what plain memory takes, of several
// repetitions: they differ, and so will the program's.
struct FarsidePrices {
  std::string name;
  std::vector<NearEvents> us;
};

// Over shared memory, tcp, and shared memory with 3 us added as RDMA has them; or over the server that the user named.
// As many threads as `threads` do the faulting at once.
Result<std::vector<FarsidePrices>> measure_prices(const RunSettings& run, unsigned threads, const SignalHold& hold,
                                                  bool quiet);

// One that fetches blocks of some size, keeps the ones used last near, and pays the same for every miss.
struct PublishedPrice {
  const char* name;
  unsigned block_bits;
  double us;
  const char* source;
};
const std::vector<PublishedPrice>& published_prices();

}  // namespace farside::cli::plan
