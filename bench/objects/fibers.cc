// Random reads by 1 to 64 fibers on one worker: objects of 64 B and of 4 KiB, and paging with and without hints. On
// kernel swap as many threads read instead, because only a thread can wait for the kernel.
#include <fmt/format.h>

#include <thread>

#include "base/clock.h"
#include "base/log.h"
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

// `read(accesses, seed)` reads objects of that size at random.
template <typename Read>
json rates(const Setup& setup, FarMemory& far, unsigned fibers, size_t object_bytes, Read read) {
  uint64_t accesses = setup.settings().accesses;
  time_fibers(fibers, [&](unsigned f) { read(accesses / 4 / fibers, f); });
  double before = bytes_fetched(far);
  double seconds = time_fibers(fibers, [&](unsigned f) { read(accesses / fibers, kMaxCount + f); });
  double useful = static_cast<double>(accesses * object_bytes);
  return {{"reads_per_s", static_cast<double>(accesses) / seconds},
          {"bytes_per_useful", (bytes_fetched(far) - before) / useful}};
}

Result<json> measure_far(const Setup& setup, const char* transport, const NamedConfiguration& configuration,
                         unsigned fibers) {
  auto far = open_for_lines(setup, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, setup.settings().bytes / sizeof(Line));
  return rates(setup, **far, fibers, sizeof(Line),
               [&](uint64_t accesses, uint64_t seed) { read_at_random(lines, accesses, seed); });
}

Result<json> measure_large(const Setup& setup, const char* transport, const char*, unsigned fibers) {
  auto far = open_for_lines(setup, transport, Configuration::kOneByOne);
  if (!far.ok()) return far.status();
  std::vector<unique_ptr<Page>> pages(setup.settings().bytes / sizeof(Page));
  for (uint64_t i = 0; i < pages.size(); i++) pages[i] = make_unique<Page>(Page{{i}});
  settle();
  return rates(setup, **far, fibers, sizeof(Page), [&](uint64_t accesses, uint64_t seed) {
    Random random(seed);
    for (uint64_t i = 0; i < accesses; i++) {
      uint64_t at = random.next() % pages.size();
      deref_scope scope;
      if (pages[at].deref(scope)->words[0] != at) die("object {} has wrong content", at);
    }
  });
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

constexpr const char* kLarge[] = {"objects of 4 KiB"};
constexpr const char* kSwapOnly[] = {kSwap};
constexpr const char* kThreads[] = {"threads"};

std::vector<Measurement> measurements(const Setup& setup) {
  auto all = measure_each(setup, measure_far, Axis{"transport", kTransports}, Axis{"configuration", kConfigurations},
                          Axis{"fibers", kCounts});
  std::ranges::move(measure_each(setup, measure_large, Axis{"transport", kTransports}, Axis{"configuration", kLarge},
                                 Axis{"fibers", kCounts}),
                    std::back_inserter(all));
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
          .tables = {table("random reads, thousands a second, by fibers", {"configuration", "transport"},
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
