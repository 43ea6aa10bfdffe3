// `farside bench redis`: an unmodified redis-server, native, over far memory and on kernel swap.
#include <fmt/format.h>

#include "base/bits.h"
#include "bench/redis_server.h"
#include "bench/suites.h"
#include "launch/installation.h"
#include "launch/preload.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr unsigned kValueBytes = 512;
constexpr unsigned kInFlight = 16;
constexpr const char* kTests[] = {"set", "get"};

struct Configuration {
  const char* name;
  const char* transport;  // nullptr: no far memory
  const char* writeback = "page";
  bool all_near = false;
};
// The native run is first: the memory limit for kernel swap is a share of its size.
constexpr const char* kNative = "native";
constexpr Configuration kConfigurations[] = {{kNative, nullptr}, {"shm", "shm"},
                                             {"tcp", "tcp"},     {"tcp, lines", "tcp", "line"},
                                             {kSwap, nullptr},   {"shm, all near", "shm", "page", true}};

// What the native run held, and the swap that was made for it.
struct Shared {
  uint64_t native_bytes = 0;
  std::unique_ptr<ZramSwap> swap;
  std::unique_ptr<MemoryLimit> limit;
};

Result<Words> far_launcher(const Setup& setup, const Configuration& configuration) {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return installation.status();
  std::string local = fmt::format("{:g}%", configuration.all_near ? 100 : 100 * setup.settings().share);
  return Words{installation->farside(),
               "run",
               "--quiet",
               "--local",
               local,
               "--far",
               setup.far(configuration.transport).address,
               "--tune",
               std::string("writeback=") + configuration.writeback,
               "--"};
}

Result<Words> swap_launcher(const Setup& setup, Shared* shared) {
  if (!setup.settings().zram) return Status::error(ECANCELED, "left out by --no-zram");
  if (shared->limit) return shared->limit->launcher();
  auto swap = ZramSwap::create(2 * shared->native_bytes);
  if (!swap.ok()) return swap.status();
  auto near = static_cast<uint64_t>(setup.settings().share * static_cast<double>(shared->native_bytes));
  auto limit = MemoryLimit::create(near);
  if (!limit.ok()) return limit.status();
  shared->swap = std::move(*swap);
  shared->limit = std::move(*limit);
  return shared->limit->launcher();
}

Result<json> run_test(const Settings& s, RedisServer& redis, const char* test) {
  uint64_t before = redis.bytes_written();
  Result<std::string> csv = redis.benchmark(test, s.requests, s.keys, kValueBytes, kInFlight);
  Result<json> figures = csv.ok() ? parse_redis_csv(*csv) : csv.status();
  if (!figures.ok()) return figures;
  auto written = static_cast<double>(redis.bytes_written() - before);
  (*figures)["written_per_op"] = written / static_cast<double>(s.requests);
  return figures;
}

Result<json> measure_with(const Setup& setup, const Words& launcher) {
  const Settings& s = setup.settings();
  auto redis = RedisServer::start(setup.hold(), launcher);
  if (!redis.ok()) return redis.status();
  if (Status filled = (*redis)->fill(s.keys, kValueBytes); !filled.ok()) return filled;
  uint64_t bytes = (*redis)->resident_bytes();
  json rows = json::array();
  for (const char* test : kTests) {
    auto figures = run_test(s, **redis, test);
    if (!figures.ok()) return figures;
    if (launcher.empty()) (*figures)["resident_bytes"] = bytes;
    rows.push_back(make_row({{"test", test}}, *figures));
  }
  return rows;
}

Result<json> measure(const Setup& setup, const Configuration& configuration, Shared* shared) {
  if (configuration.name == kNative) return measure_with(setup, {});
  if (Status s = hand_over_token(setup.server().token()); !s.ok()) return s;
  auto launcher = configuration.transport ? far_launcher(setup, configuration) : swap_launcher(setup, shared);
  return launcher.ok() ? measure_with(setup, *launcher) : launcher.status();
}

// The kernel may kill the server in its memory limit.
std::vector<Measurement> measurements(const Setup& setup) {
  auto shared = std::make_shared<Shared>();
  std::vector<Measurement> all;
  for (const Configuration& configuration : kConfigurations) {
    bool swaps = configuration.name == kSwap;
    all.push_back({.key = {{"configuration", configuration.name}},
                   .name = configuration.name,
                   .run = [&setup, &configuration, shared] { return measure(setup, configuration, shared.get()); },
                   .may_fail = swaps,
                   .in_parent = true,
                   .use =
                       [shared](const json& rows) {
                         const json& figures = rows[0]["figures"];
                         if (figures.contains("resident_bytes")) shared->native_bytes = figures["resident_bytes"];
                         return Status();
                       }});
  }
  return all;
}

}  // namespace

Suite redis_suite() {
  return {
      .name = "redis",
      .measurements = measurements,
      .tables = {table("512 B values, 16 in flight", {"configuration"},
                       {col("ops/s", "ops_per_s", 0), col("p50 us", "p50_us", 0), col("p99 us", "p99_us", 0),
                        col("B written back", "written_per_op", 0)})
                     .by("test")},
      .targets = {
          goal("{test}: shm, times the operations of zram swap", "ops_per_s", at_least(2), {{"configuration", "shm"}})
              .over("ops_per_s", {{"configuration", kSwap}}),
          goal("{test}: all near, against native", "ops_per_s", at_least(97, "%"), {{"configuration", "shm, all near"}})
              .over("ops_per_s", {{"configuration", kNative}})
              .times(100)}};
}

}  // namespace farside::bench
