#include "tools/plan/prices.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/bits.h"
#include "base/clock.h"
#include "measure/process.h"
#include "report/format.h"
#include "tools/plan/observation.h"

namespace farside::plan {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr uint64_t kBytes = 64 * kMiB, kLocal = kBytes / 2;
constexpr unsigned kRepetitions = 5;
constexpr double kSeconds = 1;  // limit of one measurement
constexpr const char* kRdmaLatency = "?latency_us=3";

// Microseconds per access with `threads` threads.
double pace(const Arena& arena, const Workload& workload, unsigned threads, uint64_t accesses) {
  uint64_t start = 0;
  return run_accesses(arena, workload, threads, {accesses / threads, kSeconds}, &start).us;
}

uint64_t fetched(const pager::Stats& stats) {
  return stats.get(Counter::kMajorFaults) + stats.get(Counter::kPrefetched);
}

class Prices {
 public:
  Prices(FarMemoryConfig config, unsigned threads) : config_(std::move(config)), threads_(threads) {
    config_.bytes = kBytes;
    config_.local = kLocal;
  }

  Result<json> measure() {
    Status done = on_plain_memory();
    if (done.ok()) done = on_untouched_memory();
    if (done.ok()) done = on_full_memory();
    if (!done.ok()) return done;
    return json{{"us", price_.us}, {"stream_fetch_at_work", price_.stream_fetch_at_work}};
  }

 private:
  Status on_plain_memory() {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Status::error(errno, "no memory: {}", strerror(errno));
    madvise(memory, kBytes, MADV_NOHUGEPAGE);
    Arena arena = {static_cast<std::byte*>(memory), kBytes / kPageSize};
    plain_touch_ = pace(arena, kSequentialWrite, threads_, arena.pages);
    plain_ = pace(arena, kRandomRead, threads_, arena.pages);
    munmap(memory, kBytes);
    return {};
  }

  // Accesses at random, a quarter as many as there are pages, so that nothing is evicted yet.
  Status on_untouched_memory() {
    auto far = FarMemory::create(config_);
    if (!far.ok()) return far.status();
    Arena arena = (*far)->arena();
    double us = pace(arena, kRandomWrite, threads_, arena.pages / 4);
    auto touched = static_cast<double>((*far)->stats().get(Counter::kZeroFaults));
    price_.us[kFirstTouch] = us * static_cast<double>(arena.pages) / 4 / std::max(1.0, touched) - plain_touch_;
    return {};
  }

  Status on_full_memory() {
    auto far = FarMemory::create(config_);
    if (!far.ok()) return far.status();
    Arena arena = (*far)->arena();
    price_.us[kStreamFirstTouch] = pace(arena, kSequentialWrite, threads_, arena.pages) - plain_touch_;
    pace(arena, kSequentialRead, threads_, arena.pages);  // evicts all pages that were written
    price_.us[kStreamFetch] = miss(**far, kSequentialRead);
    price_.stream_fetch_at_work = std::min(price_.us[kStreamFetch], scan_at_work(arena));
    price_.us[kFetch] = miss(**far, kRandomRead);
    pace(arena, kRandomWrite, threads_, arena.pages);
    double random = beyond(miss(**far, kRandomWrite), price_.us[kFetch]);
    double stream = beyond(miss(**far, kSequentialWrite), price_.us[kStreamFetch]);
    price_.us[kDirtyEviction] = (random + stream) / 2;
    // Fetches a quarter of the budget for reading, then writes it.
    pace(arena, kSequentialRead, threads_, arena.pages / 8);
    price_.us[kUpgrade] = beyond(pace(arena, kSequentialWrite, threads_, arena.pages / 8), plain_);
    return {};
  }

  double miss(FarMemory& far, const Workload& workload) const {
    uint64_t accesses = far.arena().pages, before = fetched(far.stats());
    double us = beyond(pace(far.arena(), workload, threads_, accesses), plain_);
    return us * static_cast<double>(accesses) /
           static_cast<double>(std::max<uint64_t>(1, fetched(far.stats()) - before));
  }

  // By one thread: the time per page of a scan that works for kWorkUs on each page, without that work.
  static double scan_at_work(const Arena& arena) {
    auto work = static_cast<uint64_t>(FarsidePrice::kWorkUs * ticks_per_us());
    uint64_t begin = ticks(), worked = 0;
    for (uint64_t page = 0; page < arena.pages; page++) {
      std::atomic_ref(reinterpret_cast<uint64_t&>(arena.base[page * kPageSize])).load(std::memory_order_relaxed);
      uint64_t start = ticks();
      while (ticks() - start < work) {}
      worked += ticks() - start;
    }
    double us = static_cast<double>(ticks() - begin - worked) / ticks_per_us();
    return us / static_cast<double>(arena.pages);
  }

  static double beyond(double us, double less) { return std::max(0.0, us - less); }

  FarMemoryConfig config_;
  unsigned threads_;
  FarsidePrice price_;
  double plain_ = 0, plain_touch_ = 0;
};

struct Link {
  std::string name, address, token;
};

std::vector<Link> links(const cli::RunSettings& run, const PriceSettings& settings, const ServerProcess* server) {
  if (!server) return {{run.options.far_address, run.options.far_address, run.options.token}};
  std::vector<Link> all = {{"shm", server->shm(), server->token()}, {"tcp", server->tcp(), server->token()}};
  if (settings.links == Links::kShm) return {all[0]};
  if (settings.links == Links::kTcp) return {all[1]};
  all.push_back({"RDMA, 3 us", server->shm() + kRdmaLatency, server->token()});
  for (double us : settings.latencies) {
    all.push_back({fmt::format("{:g} us", us), fmt::format("{}?latency_us={:g}", server->shm(), us), server->token()});
  }
  return all;
}

}  // namespace

unsigned busy_threads(double processors) {
  auto cores = static_cast<double>(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN)));
  return static_cast<unsigned>(std::lround(std::clamp(processors, 1.0, cores)));
}

Result<std::vector<FarsidePrices>> measure_prices(const cli::RunSettings& run, const PriceSettings& settings,
                                                  const SignalHold& hold) {
  std::unique_ptr<ServerProcess> server;
  if (run.embedded()) {
    auto started = ServerProcess::start(hold, 2 * kBytes + 32 * remote::kSlabBytes);
    if (!started.ok()) return started.status();
    server = std::move(*started);
  }
  std::vector<FarsidePrices> prices;
  std::vector<Link> measured = links(run, settings, server.get());
  prices.reserve(measured.size());
  for (const Link& link : measured) prices.push_back({link.name, {}});
  Progress progress(kRepetitions * measured.size(), run.options.quiet);
  for (unsigned i = 0; i < kRepetitions * measured.size(); i++) {
    const Link& link = measured[i % measured.size()];
    progress.step("prices over " + link.name);
    Result<json> us = run_in_child(
        hold, [&] { return Prices({.address = link.address, .token = link.token}, settings.threads).measure(); });
    if (!us.ok()) return us.status();
    FarsidePrice price = {(*us)["us"].get<NearEvents>(), (*us)["stream_fetch_at_work"]};
    prices[i % measured.size()].repetitions.push_back(price);
  }
  return prices;
}

const std::vector<PublishedPrice>& published_prices() {
  // Cycles in AIFM's table are at 2.4 GHz (AIFM 8), 90th percentiles of reads.
  static const std::vector<PublishedPrice> kPrices = {
      {"CXL-like, by lines", kLineBits, 0.4, "assumed"},
      {"Kona, RDMA", kPageBits, 3, "Kona 2.1 (4 KiB read by RDMA), 4.4 (no fault)"},
      {"ideal of MAGE", kPageBits, 3.9, "MAGE 3.1"},
      {"MAGE", kPageBits, 4.6, "MAGE 6.2"},
      {"DiLOS", kPageBits, 4.7, "MAGE 6.5"},
      {"Hermit", kPageBits, 5.8, "MAGE 6.5"},
      {"AIFM, objects of 64 B", kLineBits, 7.7, "AIFM 8.3.1, figure 12"},
      {"Fastswap", kPageBits, 9.9, "AIFM 8.3.1, figure 12"},
      {"LegoOS", kPageBits, 10, "Kona 2.1"},
      {"swap on an SSD", kPageBits, 15, "AIFM 3, figure 2"},
      {"Infiniswap", kPageBits, 40, "Kona 2.1"},
  };
  return kPrices;
}

}  // namespace farside::plan
