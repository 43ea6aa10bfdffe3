// What a miss costs: on Farside, measured here over several links; on published systems, as their papers tell.
#pragma once
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/plan/reuse/near_model.h"
#include "cli/run_settings.h"
#include "launch/child.h"
#include "measure/far_memory.h"

namespace farside::cli::plan {

// What Farside's events cost, in microseconds beyond what plain memory takes; less than 0 for first touches that take
// less.
struct FarsidePrice {
  NearEvents us{};
  // Of a page of a stream whose program works kWorkUs on each page, which is when evictors map the next ones.
  double stream_fetch_at_work = 0;
  static constexpr double kWorkUs = 2;

  // For a program that works so long on each page of its streams.
  NearEvents at_work(double work_us) const {
    NearEvents prices = us;
    prices[kStreamFetch] = std::lerp(us[kStreamFetch], stream_fetch_at_work, std::min(1.0, work_us / kWorkUs));
    return prices;
  }
};

// Over a link, in several repetitions: they differ, and so will the program's.
struct FarsidePrices {
  std::string name;
  std::vector<FarsidePrice> repetitions;
};

// Over shared memory, tcp, and shared memory with 3 us added as RDMA has them, and with each of `latencies` added; or
// over the server that the user named. As many threads as `threads` do the faulting at once.
Result<std::vector<FarsidePrices>> measure_prices(const RunSettings& run, const std::vector<double>& latencies,
                                                  unsigned threads, const SignalHold& hold);

// One that fetches blocks of some size, keeps the ones used last near, and pays the same for every miss.
struct PublishedPrice {
  const char* name;
  unsigned block_bits;
  double us;
  const char* source;
};
const std::vector<PublishedPrice>& published_prices();

}  // namespace farside::cli::plan
