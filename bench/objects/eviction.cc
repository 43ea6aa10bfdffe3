// CPU cycles of eviction per evicted byte: pages of objects compared with plain pages. The cycles of the evacuator,
// which plain pages do not need, are given per write: objects fetched one by one cause fewer evictions, so a value per
// evicted byte would not be comparable.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "bench/objects/lines.h"
#include "measure/random.h"
#include "report/machine.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr unsigned kFibers = 8;
constexpr NamedConfiguration kConfigurations[] = {{"plain pages", Configuration::kPages},
                                                  {kAsPages, Configuration::kAsPages},
                                                  {kOneByOne, Configuration::kOneByOne},
                                                  {kHybrid, Configuration::kHybrid}};

// CPU time of the threads of this process with that name. 0 if the kernel does not report it.
uint64_t cpu_ns_of_threads(const std::string& name) {
  uint64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    if (read_line(entry.path() / "comm") != name) continue;
    uint64_t ns = 0;
    std::ifstream(entry.path() / "schedstat") >> ns;
    sum += ns;
  }
  return sum;
}

struct Spent {
  double evictions, evictor_ns, evacuator_ns;
  static Spent until_now(FarMemory& far) {
    pager::Stats stats = far.stats();
    return {static_cast<double>(stats.get(Counter::kEvictions)), static_cast<double>(stats.get(Counter::kEvictorCpuNs)),
            static_cast<double>(cpu_ns_of_threads("far-evacuate"))};
  }
};

void write_at_random(Lines& lines, uint64_t accesses, uint64_t seed) {
  time_fibers(kFibers, [&](unsigned f) {
    Random random(seed + f);
    for (uint64_t i = 0; i < accesses / kFibers; i++) lines.write(random.next() % lines.count());
  });
}

Result<json> measure(const Setup& setup, const char* transport, const NamedConfiguration& configuration) {
  auto far = open_for_lines(setup, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, setup.settings().bytes / sizeof(Line));
  write_at_random(lines, setup.settings().accesses / 4, 0);
  Spent before = Spent::until_now(**far);
  write_at_random(lines, setup.settings().accesses, kFibers);
  Spent after = Spent::until_now(**far);
  auto writes = static_cast<double>(setup.settings().accesses);
  double evictions = after.evictions - before.evictions, cycles_per_ns = ticks_per_us() / 1000;
  double evictor = (after.evictor_ns - before.evictor_ns) * cycles_per_ns;
  double evacuator = (after.evacuator_ns - before.evacuator_ns) * cycles_per_ns;
  return json{{"evictions_per_write", evictions / writes},
              {"evictor_cycles_per_byte", evictor / std::max(1.0, evictions * kPageSize)},
              {"evictor_cycles_per_write", evictor / writes},
              {"evacuator_cycles_per_write", evacuator / writes}};
}

}  // namespace

// AIFM takes 43.7 cycles per byte and Atlas 5.9 (Atlas 5.2).
Suite eviction_suite() {
  return {.name = "eviction",
          .measurements = each(measure, Axis{"transport", kTransports}, Axis{"configuration", kConfigurations}),
          .tables = {table("random writes of lines", {"configuration", "transport"},
                           {col("pages evicted per write", "evictions_per_write", 3),
                            col("evictors: cycles per byte", "evictor_cycles_per_byte", 2),
                            col("cycles per write", "evictor_cycles_per_write", 0),
                            col("evacuator: cycles per write", "evacuator_cycles_per_write", 0)})},
          .targets = {goal("evicted pages of objects over {transport}, hybrid: evictors' cycles per byte",
                           "evictor_cycles_per_byte", at_most(2, ""), {{"configuration", kHybrid}})}};
}

}  // namespace farside::bench::objects_bench
