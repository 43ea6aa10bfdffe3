#include "measure/configurations.h"

#include <cstring>

#include "base/clock.h"
#include "measure/statistics.h"
#include "remote/connect.h"

namespace farside {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr double kMissUs = 1;  // a near access takes less, a fault more
constexpr uint64_t kComputeBytes = 64 * kMiB;
constexpr unsigned kComputeRounds = 30;
constexpr unsigned kRoundTrips = 20000;
constexpr uint64_t kRoundTripTimeoutNs = 5'000'000'000;

json difference(const pager::Stats& before, const pager::Stats& after) {
  json counters;
  for (const pager::NamedCounter& n : pager::kNamedCounters) {
    counters[n.name] = pager::in_unit(n.unit, after.get(n.counter) - before.get(n.counter));
  }
  return counters;
}

using ReadStats = std::function<pager::Stats()>;  // empty: there is no pager

json measure_cell(const AccessSettings& settings, const Arena& arena, const Workload& workload, unsigned threads,
                  const ReadStats& stats) {
  // Warms up: enough accesses to replace all near pages, so that a steady state of this workload is measured.
  auto near_pages = static_cast<uint64_t>(settings.local * static_cast<double>(arena.pages));
  uint64_t start = 0;
  run_accesses(arena, workload, threads, {2 * near_pages / threads, settings.seconds}, &start);
  pager::Stats before = stats ? stats() : pager::Stats();
  Pace pace = run_accesses(arena, workload, threads, {settings.accesses, settings.seconds}, &start);
  json cell = {{"workload", workload.name}, {"threads", threads}, {"us", pace.us}, {"per_s", pace.per_s}};
  cell["counters"] = stats ? difference(before, stats()) : json::object();
  cell["counters"]["accesses"] = pace.accesses;
  return cell;
}

json measure_misses(const AccessSettings& settings, const Arena& arena) {
  std::vector<uint32_t> times = time_random_reads(arena, {settings.accesses, settings.seconds});
  auto all = static_cast<double>(times.size());
  double per_us = ticks_per_us();
  std::erase_if(times, [&](uint32_t t) { return t < kMissUs * per_us; });
  if (times.empty()) return nullptr;
  return {{"share", static_cast<double>(times.size()) / all},
          {"median_us", quantile(times, 0.5) / per_us},
          {"p99_us", quantile(times, 0.99) / per_us},
          {"p999_us", quantile(times, 0.999) / per_us}};
}

json measure_all(const AccessSettings& settings, const Arena& arena, const ReadStats& stats) {
  populate(arena);
  json cells = json::array(), miss;
  for (const Workload& workload : settings.workloads) {
    for (unsigned threads : settings.threads) {
      cells.push_back(measure_cell(settings, arena, workload, threads, stats));
      // At this point memory is in the steady state of random reads.
      if (cells.size() == 1 && workload.random && !workload.write) miss = measure_misses(settings, arena);
    }
  }
  return {{"cells", cells}, {"miss", miss}};
}

// Fills a part of far memory, so that the reads find stored pages.
Status store_pages(transport::Channel& channel, std::byte* buffer, unsigned pages) {
  for (unsigned i = 0; i < pages; i++) {
    memset(buffer, static_cast<int>(i % 255 + 1), kPageSize);
    transport::ByteRange range = {i * kPageSize, kPageSize, buffer};
    transport::Token token = 0;
    int error = channel.submit_write({&range, 1}, -1, &token);
    if (error == 0) error = channel.wait(token, kRoundTripTimeoutNs);
    if (error) return Status::error(-error, "cannot write to far memory: {}", strerror(-error));
  }
  return {};
}

int read_polled(transport::Channel& channel, uint64_t far, std::byte* buffer) {
  transport::ByteRange range = {far, kPageSize, buffer};
  transport::Token token = 0;
  int state = channel.submit_read({&range, 1}, &token);
  if (state < 0) return state;
  do state = channel.poll(token);
  while (state == 0);
  return state < 0 ? state : 0;
}

Result<json> time_round_trips(transport::Channel& channel) {
  constexpr unsigned kPages = 4096;
  auto* buffer = static_cast<std::byte*>(near_alloc(kPageSize));
  Status stored = store_pages(channel, buffer, kPages);
  if (!stored.ok()) return stored;
  std::vector<double> us;
  for (unsigned i = 0; i < kRoundTrips; i++) {
    uint64_t start = ticks();
    int error = read_polled(channel, i * 2654435761u % kPages * kPageSize, buffer);
    if (error) return Status::error(-error, "cannot read far memory: {}", strerror(-error));
    us.push_back(static_cast<double>(ticks() - start) / ticks_per_us());
  }
  near_free(buffer, kPageSize);
  return json{{"us", median(us)}};
}

}  // namespace

Result<json> measure_far(const AccessSettings& settings, const FarMemoryConfig& config, const MeasureMore& more) {
  auto far = FarMemory::create(config);
  if (!far.ok()) return far.status();
  Arena arena = (*far)->arena();
  if (settings.hinted) arena.hint = [&](const std::byte* word) { (*far)->hint_read(word, sizeof(uint64_t)); };
  json measured = measure_all(settings, arena, [&] { return (*far)->stats(); });
  more(**far, &measured);
  return measured;
}

Result<json> measure_far(const AccessSettings& settings, const FarMemoryConfig& config) {
  return measure_far(settings, config, [](FarMemory&, json*) {});
}

Result<json> measure_memory(const AccessSettings& settings, std::byte* memory) {
  return measure_all(settings, {memory, settings.bytes / kPageSize}, nullptr);
}

Result<json> measure_plain(const AccessSettings& settings, const KernelSwap* swap) {
  Result<std::byte*> memory = swap ? swap->enter_and_map(settings.bytes) : map_plain(settings.bytes);
  if (!memory.ok()) return memory.status();
  return measure_memory(settings, *memory);
}

Result<json> measure_round_trip(const FarMemoryConfig& config) {
  auto store = remote::connect_store({.address = config.address.c_str(),
                                      .token = config.token.c_str(),
                                      .region_bytes = remote::kSlabBytes,
                                      .relays = {.ucx = config.ucx_relay.c_str()}});
  if (!store.ok()) return store.status();
  Status grown = (*store)->grow(remote::kSlabBytes);
  if (!grown.ok()) return grown;
  Status opened;
  transport::Channel* channel = (*store)->open_channel(&opened);
  if (!channel) return opened;
  Result<json> timed = time_round_trips(*channel);
  (*store)->close_channel(channel);
  return timed;
}

Result<json> measure_all_near(const AccessSettings& settings, FarMemoryConfig config) {
  config.bytes = std::min(settings.bytes, kComputeBytes);
  config.local = 2 * config.bytes;
  auto far = FarMemory::create(config);
  if (!far.ok()) return far.status();
  Result<std::byte*> plain = map_plain(config.bytes);
  if (!plain.ok()) return plain.status();
  std::span<uint64_t> near{reinterpret_cast<uint64_t*>(*plain), config.bytes / sizeof(uint64_t)};
  std::span<uint64_t> remote{reinterpret_cast<uint64_t*>((*far)->arena().base), near.size()};
  populate({*plain, config.bytes / kPageSize});
  populate((*far)->arena());
  // The best of each: single rounds over the same memory differ by tens of percent on a shared machine.
  constexpr double kNever = 1e300;
  double best_near = kNever, best_remote = kNever;
  for (unsigned round = 0; round < kComputeRounds; round++) {
    if (round % 2 == 0) best_near = std::min(best_near, compute(near, round));
    best_remote = std::min(best_remote, compute(remote, round));
    if (round % 2 == 1) best_near = std::min(best_near, compute(near, round));
  }
  return json{{"ratio", best_remote / best_near}};
}

}  // namespace farside
