#include "bench/scaling/scaling_command.h"

#include <fstream>
#include <memory>

#include "bench/runner/options.h"
#include "bench/scaling/calibrate.h"
#include "bench/scaling/scaling.h"
#include "report/files.h"

namespace farside::bench {
namespace {

constexpr const char* kHelp =
    "Simulates the pager's faults and evictions with up to 128 threads on a large machine. Measures this machine "
    "first\n"
    "and simulates it, too, to show how far the simulation can be trusted. What the figures mean: "
    "docs/internals/scaling.md.\n\n"
    "Examples:\n"
    "  farside bench scaling --save-costs costs.json --json scaling.json --plots plots\n"
    "  farside bench scaling --costs costs.json --threads 8,48,128";

const Benchmark kScaling = {.name = "scaling",
                            .help = "Up to 128 threads and 8 evictors on a large machine, simulated",
                            .footer = kHelp,
                            .options = "--size --repeat --accesses --seed",
                            .defaults = {.size = "256M", .accesses = 100000},
                            .needs = 0,
                            .suites = {}};

struct Arguments {
  Settings common = kScaling.defaults;
  scaling::ScalingSettings settings;
  std::string costs, save_costs, plots;
};

Result<scaling::Costs> read_costs(const std::string& file) {
  nlohmann::json document = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  if (document.is_discarded()) return Status::error(EINVAL, "--costs {}: no JSON file that can be read", file);
  return scaling::parse_costs(document);
}

Result<scaling::Costs> measure(const Settings& s) {
  return scaling::measure_costs(
      {.bytes = s.bytes, .accesses = s.accesses, .repetitions = s.repetitions, .quiet = s.quiet});
}

Status write_results(const Arguments& a, const nlohmann::json& document) {
  for (const auto& [name, svg] : scaling::scaling_plots(document)) {
    Status written = write_file(a.plots.empty() ? "" : a.plots + "/" + name, svg);
    if (!written.ok()) return written;
  }
  return write_file(a.common.json, document.dump(2) + "\n");
}

int bench_scaling(Arguments a) {
  Status settled = settle(kScaling, &a.common);
  if (settled.ok()) settled = check_writable(a.save_costs);
  if (!settled.ok()) return fail(settled, kExitUsage);
  auto costs = a.costs.empty() ? measure(a.common) : read_costs(a.costs);
  if (!costs.ok()) return fail(costs.status());
  if (Status s = write_file(a.save_costs, scaling::to_json(*costs).dump(2) + "\n"); !s.ok()) return fail(s);
  a.settings.seed = a.common.seed;
  a.settings.quiet = a.common.quiet;
  nlohmann::json document = scaling::predict(*costs, a.settings);
  fputs(scaling::scaling_text(document).c_str(), stdout);
  Status written = write_results(a, document);
  return written.ok() ? 0 : fail(written);
}

}  // namespace

void add_scaling_command(Command& parent) {
  Command& command = parent.add_command(kScaling.name, kScaling.help);
  auto arguments = std::make_shared<Arguments>();
  scaling::ScalingSettings& settings = arguments->settings;
  command.add_option("--costs", &arguments->costs, "costs to take instead of measuring").value("FILE");
  command.add_option("--save-costs", &arguments->save_costs, "file for the measured costs").value("FILE");
  command.add_option("--threads", &settings.threads, "numbers of threads, separated by commas")
      .value("LIST")
      .separator(',')
      .range(1u, 1024u);
  command.add_option("--faults", &settings.faults, "faults that each simulation measures")
      .value("N")
      .range(1000u, 100000000u)
      .show_default();
  command.add_option("--plots", &arguments->plots, "folder for plots").value("DIR").existing_directory();
  add_options({&kScaling}, kScaling, command, &arguments->common);
  command.set_footer(kHelp);
  command.set_action([arguments] { return bench_scaling(*arguments); });
}

}  // namespace farside::bench
