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
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;
using pager::Counter;

constexpr unsigned kFibers = 8;
constexpr double kGoal = 2;  // cycles per byte; AIFM takes 43.7 and Atlas 5.9 (Atlas 5.2)
constexpr NamedConfiguration kConfigurations[] = {{"plain pages", Configuration::kPages},
                                                  {"objects, as pages only", Configuration::kAsPages},
                                                  {"objects, one by one only", Configuration::kOneByOne},
                                                  {"objects, hybrid", Configuration::kHybrid}};

json key_of(const std::string& transport, const std::string& configuration) {
  return {{"suite", "eviction"}, {"transport", transport}, {"configuration", configuration}};
}

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

Result<json> measure(const Context& context, const std::string& transport, const NamedConfiguration& configuration) {
  auto far = open_for_lines(context, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, context.settings.bytes / sizeof(Line));
  write_at_random(lines, context.settings.accesses / 4, 0);
  Spent before = Spent::until_now(**far);
  write_at_random(lines, context.settings.accesses, kFibers);
  Spent after = Spent::until_now(**far);
  auto writes = static_cast<double>(context.settings.accesses);
  double evictions = after.evictions - before.evictions, cycles_per_ns = ticks_per_us() / 1000;
  double evictor = (after.evictor_ns - before.evictor_ns) * cycles_per_ns;
  double evacuator = (after.evacuator_ns - before.evacuator_ns) * cycles_per_ns;
  return json::array({make_row(key_of(transport, configuration.name),
                               {{"evictions_per_write", evictions / writes},
                                {"evictor_cycles_per_byte", evictor / std::max(1.0, evictions * kPageSize)},
                                {"evictor_cycles_per_write", evictor / writes},
                                {"evacuator_cycles_per_write", evacuator / writes}})});
}

std::vector<Measurement> measurements(const Context& context) {
  std::vector<Measurement> all;
  for (std::string transport : kTransports) {
    for (const NamedConfiguration& configuration : kConfigurations) {
      all.push_back({fmt::format("eviction, {}, {}", configuration.name, transport),
                     [=, &configuration] { return measure(context, transport, configuration); }});
    }
  }
  return all;
}

std::string text(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"random writes of lines", "pages evicted per write",
                                                 "evictors: cycles per byte", "cycles per write",
                                                 "evacuator: cycles per write"}};
  for (const char* transport : kTransports) {
    for (const NamedConfiguration& configuration : kConfigurations) {
      json key = key_of(transport, configuration.name);
      rows.push_back({fmt::format("{}, {}", configuration.name, transport),
                      figure_text(document, key, "evictions_per_write", 1, 3),
                      figure_text(document, key, "evictor_cycles_per_byte", 1, 2),
                      figure_text(document, key, "evictor_cycles_per_write", 1, 0),
                      figure_text(document, key, "evacuator_cycles_per_write", 1, 0)});
    }
  }
  return format_table(rows);
}

std::vector<Goal> goals(const json& document) {
  std::vector<Goal> goals;
  for (const char* transport : kTransports) {
    goals.push_back({fmt::format("evicted pages of objects over {}, hybrid: evictors' cycles per byte", transport),
                     figure(document, key_of(transport, "objects, hybrid"), "evictor_cycles_per_byte"), kGoal, false,
                     ""});
  }
  return goals;
}

}  // namespace

const Suite kEviction = {"eviction", measurements, text, goals, no_charts};

}  // namespace farside::bench::objects_bench
