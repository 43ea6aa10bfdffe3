// Random reads by 1 to 64 fibers on one worker: objects, and paging with and without hints. On kernel swap as many
// threads read instead, because only a thread can wait for the kernel.
#include <fmt/format.h>

#include <thread>

#include "base/clock.h"
#include "bench/objects/lines.h"
#include "measure/configurations.h"
#include "measure/random.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr unsigned kCounts[] = {1, 4, 16, 64};
constexpr unsigned kMaxCount = 64;

constexpr NamedConfiguration kConfigurations[] = {{"objects", Configuration::kOneByOne},
                                                  {"pages, hinted", Configuration::kHintedPages},
                                                  {"pages, no hints", Configuration::kPages}};

void read_at_random(Lines& lines, uint64_t accesses, uint64_t seed) {
  Random random(seed);
  for (uint64_t i = 0; i < accesses; i++) lines.read(random.next() % lines.count());
}

Result<json> measure_far(const Setup& setup, const char* transport, const NamedConfiguration& configuration,
                         unsigned fibers) {
  auto far = open_for_lines(setup, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, setup.settings().bytes / sizeof(Line));
  uint64_t accesses = setup.settings().accesses;
  time_fibers(fibers, [&](unsigned f) { read_at_random(lines, accesses / 4 / fibers, f); });
  double before = bytes_fetched(**far);
  double seconds = time_fibers(fibers, [&](unsigned f) { read_at_random(lines, accesses / fibers, kMaxCount + f); });
  double useful = static_cast<double>(accesses) * sizeof(Line);
  return json{{"reads_per_s", static_cast<double>(accesses) / seconds},
              {"bytes_per_useful", (bytes_fetched(**far) - before) / useful}};
}

double time_threads(unsigned threads, const std::function<void(unsigned)>& work) {
  uint64_t begin = now_ns();
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; t++) all.emplace_back(work, t);
  for (std::thread& thread : all) thread.join();
  return static_cast<double>(now_ns() - begin) / 1e9;
}

Result<json> measure_swap(const Setup& setup, const char*, const char*, unsigned threads) {
  Result<std::byte*> memory = setup.swap()->enter_and_map(setup.settings().bytes);
  if (!memory.ok()) return memory.status();
  Lines lines(*memory, setup.settings().bytes / sizeof(Line));
  uint64_t accesses = setup.settings().accesses;
  read_at_random(lines, accesses / 4, 0);
  double seconds = time_threads(threads, [&](unsigned t) { read_at_random(lines, accesses / threads, kMaxCount + t); });
  return json{{"reads_per_s", static_cast<double>(accesses) / seconds}};
}

constexpr const char* kSwapOnly[] = {kSwap};
constexpr const char* kThreads[] = {"threads"};

std::vector<Measurement> measurements(const Setup& setup) {
  auto all = measure_each(setup, measure_far, Axis{"transport", kTransports}, Axis{"configuration", kConfigurations},
                          Axis{"fibers", kCounts});
  if (!setup.swap()) return all;
  for (Measurement& m : measure_each(setup, measure_swap, Axis{"transport", kSwapOnly}, Axis{"configuration", kThreads},
                                     Axis{"fibers", kCounts})) {
    m.may_fail = true;
    all.push_back(std::move(m));
  }
  return all;
}

}  // namespace

Suite fibers_suite() {
  return {.name = "fibers",
          .measurements = measurements,
          .tables = {table("random reads of 64 B, thousands a second, by fibers", {"configuration", "transport"},
                           {col("", "reads_per_s", 1, 1000)})
                         .by("fibers"),
                     table("bytes fetched for each useful one, by 64 fibers", {"configuration", "transport"},
                           {col("bytes", "bytes_per_useful")})
                         .of({{"fibers", kMaxCount}})},
          .targets = {goal("random 64 B reads over tcp, 64 fibers: objects against pages", "reads_per_s", at_least(7),
                           {{"transport", "tcp"}, {"configuration", "objects"}, {"fibers", kMaxCount}})
                          .over("reads_per_s", {{"configuration", "pages, no hints"}})}};
}

}  // namespace farside::bench::objects_bench
