#include "cli/commands.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "abi/options.h"
#include "command/describe.h"

namespace farside::cli {
namespace {

// Removes what follows `farside bench` from the arguments: farside-bench parses it.
std::vector<std::string> take_benchmark(std::vector<std::string>* arguments) {
  if (arguments->empty() || arguments->front() != "bench") return {};
  std::vector<std::string> rest(arguments->begin() + 1, arguments->end());
  arguments->resize(1);
  return rest;
}

// Removes the program after "--" from the arguments: the option parser would split words such as "[a,b]".
std::vector<std::string> take_program(std::vector<std::string>* arguments) {
  constexpr std::string_view kWithProgram[] = {"run", "trace", "plan", "track"};
  if (arguments->empty() || std::ranges::find(kWithProgram, arguments->front()) == std::end(kWithProgram)) return {};
  auto dashes = std::find(arguments->begin(), arguments->end(), "--");
  if (dashes == arguments->end()) return {};
  std::vector<std::string> program(dashes + 1, arguments->end());
  arguments->erase(dashes, arguments->end());
  return program;
}

int print_description(const Command& farside) {
  std::vector<VariableDescription> variables;
  for (const OptionName& name : option_names()) {
    if (!name.internal)
      variables.push_back({std::string(name.variable), std::string(name.flag), std::string(name.help)});
  }
  fputs(to_json(farside.describe(), FARSIDE_VERSION_TEXT, variables).c_str(), stdout);
  return 0;
}

}  // namespace

int run_farside(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<std::string> program = take_program(&arguments);
  std::vector<std::string> benchmark = take_benchmark(&arguments);
  Command farside("farside", "Farside runs unmodified programs with most of their memory on another machine.");
  farside.require_command();
  farside.set_footer(
      "Examples:\n  farside doctor\n  farside run --local 25% -- sort big.txt\n"
      "  farside serve --memory 4G --listen 127.0.0.1:7170");
  add_run_command(farside, program);
  add_trace_command(farside, program);
  add_plan_command(farside, program);
  add_track_command(farside, program);
  add_ctl_command(farside);
  add_serve_command(farside);
  add_pool_command(farside);
  add_core_command(farside);
  add_doctor_command(farside);
  add_bench_command(farside, benchmark);
  add_version_command(farside);
  if (asks_for_description(arguments)) return print_description(farside);
  return farside.run(std::move(arguments));
}

}  // namespace farside::cli
