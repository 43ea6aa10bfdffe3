// farside bench: measures Farside beside the kernel's swap on this machine.
#include "bench/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "bench/runner/options.h"
#include "bench/runner/report.h"
#include "bench/runner/runner.h"
#include "command/command.h"
#include "command/describe.h"
#include "report/files.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Chosen = std::vector<const Benchmark*>;

const Benchmark* find(const std::string& name) {
  auto found = std::ranges::find(benchmarks(), name, &Benchmark::name);
  return found == benchmarks().end() ? nullptr : &*found;
}

// Prints the results of each benchmark when it ends.
Result<json> run_each(const Chosen& chosen, const std::vector<Settings>& settings) {
  json documents = json::array();
  for (size_t i = 0; i < chosen.size(); i++) {
    Result<json> document = run_benchmark(*chosen[i], settings[i]);
    if (document.status().code() == EINTR && !settings[i].json.empty())
      return Status::error(EINTR, "stopped by a signal; the same command goes on from here");
    if (!document.ok()) return document;
    fmt::print("{}{}", i > 0 ? "\n" : "", text_of(*chosen[i], *document));
    documents.push_back(std::move(*document));
  }
  return documents;
}

// The file has one result, or an array of several.
int write_results(const Settings& s, const Chosen& chosen, const json& documents) {
  Status written = write_file(s.json, (documents.size() == 1 ? documents[0] : documents).dump(2) + "\n");
  size_t problems = 0;
  for (size_t i = 0; i < chosen.size(); i++) {
    problems += documents[i]["problems"].size();
    if (written.ok() && !s.plots.empty()) written = write_files(s.plots, plots_of(*chosen[i], documents[i]));
  }
  if (!written.ok()) return fail(written);
  for (const Benchmark* benchmark : chosen) unlink(journal_path(*benchmark, s).c_str());
  return problems == 0 ? 0 : fail(Status::error(EIO, "{} problems, listed above", problems));
}

int run(const Chosen& chosen, std::vector<Settings> settings) {
  for (size_t i = 0; i < chosen.size(); i++) {
    if (Status settled = settle(*chosen[i], &settings[i]); !settled.ok()) return fail(settled, kExitUsage);
  }
  Result<json> documents = run_each(chosen, settings);
  return documents.ok() ? write_results(settings[0], chosen, *documents) : fail(documents.status());
}

std::string footer(const Benchmark& benchmark) {
  std::string text = fmt::format("{}{}Examples:\n", benchmark.about, *benchmark.about ? "\n\n" : "");
  for (const char* options : benchmark.examples)
    text += fmt::format("  farside bench {}{}{}\n", benchmark.name, *options ? " " : "", options);
  return text + fmt::format("What the figures mean: {}", benchmark.page);
}

void add_benchmark(Command& parent, const Benchmark& benchmark, bool quick) {
  Command& command = parent.add_command(benchmark.name, benchmark.help);
  auto settings = std::make_shared<Settings>(quick ? benchmark.quick : benchmark.defaults);
  add_options({&benchmark}, benchmark, command, settings.get());
  command.set_footer(footer(benchmark));
  command.set_action([&benchmark, settings] { return run({&benchmark}, {*settings}); });
}

// Their defaults depend on it.
bool is_quick(const std::vector<std::string>& arguments) { return std::ranges::count(arguments, "--quick") > 0; }

// ---- Several benchmarks ----

// The names at the begin of the arguments.
Chosen named(const std::vector<std::string>& arguments) {
  Chosen chosen;
  for (const std::string& word : arguments) {
    const Benchmark* benchmark = find(word);
    if (!benchmark) break;
    chosen.push_back(benchmark);
  }
  return chosen;
}

// Their options are those that all of them take. Each has its own defaults.
int run_several(const Chosen& chosen, const std::vector<std::string>& arguments) {
  std::vector<std::string> options(arguments.begin() + static_cast<std::ptrdiff_t>(chosen.size()), arguments.end());
  std::vector<Settings> settings;
  for (const Benchmark* benchmark : chosen) {
    settings.push_back(is_quick(options) ? benchmark->quick : benchmark->defaults);
    Command command("farside bench", "Several benchmarks, one after the other.");
    add_options(chosen, *benchmark, command, &settings.back());
    bool parsed = false;
    command.set_action([&parsed] {
      parsed = true;
      return 0;
    });
    int status = command.run(options);
    if (!parsed) return status;  // an error, or help
  }
  return run(chosen, settings);
}

std::string list(const Command& bench) {
  std::string text;
  for (const CommandDescription& command : bench.describe().commands)
    text += fmt::format("{:10} {}\n", command.name, command.help);
  return text;
}

}  // namespace

int run_bench(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (Chosen chosen = named(arguments); chosen.size() > 1) return run_several(chosen, arguments);
  Command bench("farside bench", "Measures far memory beside the kernel's swap on this machine.");
  bench.require_command();
  bool lists = arguments == std::vector<std::string>{"--list"};
  bench.add_flag("--list", &lists, "print the names of the benchmarks and what they measure");
  bench.set_footer(
      "NAME NAME ... runs several benchmarks, with the options that all of them take.\n\n"
      "Examples:\n  farside bench --list\n  farside bench paging --json paging.json --plots plots\n"
      "  farside bench hints fibers --repeat 1\n  farside bench all --quick");
  for (const Benchmark& benchmark : benchmarks()) add_benchmark(bench, benchmark, is_quick(arguments));
  if (!lists) return run_tool(bench, std::move(arguments));
  fputs(list(bench).c_str(), stdout);
  return 0;
}

}  // namespace farside::bench
