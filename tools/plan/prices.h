// The cost of a miss: on Farside, measured on this machine over several links; on published systems, from their papers.
#pragma once
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_settings.h"
#include "launch/child.h"
#include "measure/far_memory.h"
#include "tools/plan/reuse/near_model.h"

namespace farside::plan {

// The costs of Farside's events, in us more than with plain memory. First touches may cost less than plain ones: then
// negative.
struct FarsidePrice {
  NearEvents us{};
  // The cost of a stream's page if the program works for kWorkUs on each page, which is when evictors map the next
  // ones.
  double stream_fetch_at_work = 0;
  static constexpr double kWorkUs = 2;

  // The prices for a program that works for `work_us` on each page of its streams.
  NearEvents at_work(double work_us) const {
    NearEvents prices = us;
    prices[kStreamFetch] = std::lerp(us[kStreamFetch], stream_fetch_at_work, std::min(1.0, work_us / kWorkUs));
    return prices;
  }
};

// Prices over one link, measured several times: they vary, and so will the program's.
struct FarsidePrices {
  std::string name;
  std::vector<FarsidePrice> repetitions;
};

enum class Links { kAll, kShm, kTcp };  // of a server that is started, where the user named none
struct PriceSettings {
  Links links = Links::kAll;
  std::vector<double> latencies;  // of further links, in us
  unsigned threads = 1;           // that fault at the same time
};
// Threads of a program that kept so many processors busy: as many as fault at the same time.
unsigned busy_threads(double processors);

// Measures over shared memory, tcp, and shared memory with 3 us added as for RDMA, and with each of `latencies` added;
// or over the server that the user named. The caller has no threads.
Result<std::vector<FarsidePrices>> measure_prices(const cli::RunSettings& run, const PriceSettings& settings,
                                                  const SignalHold& hold);

// A published system: it fetches blocks of one size, keeps the most recently used ones near, and pays the same for
// every miss.
struct PublishedPrice {
  const char* name;
  unsigned block_bits;
  double us;
  const char* source;
};
const std::vector<PublishedPrice>& published_prices();

}  // namespace farside::plan
