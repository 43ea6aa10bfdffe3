#include "cli/commands.h"

#include <cstdio>

#include "abi/options.h"
#include "cli/tools.h"
#include "command/describe.h"

namespace farside::cli {
namespace {

// Removes what follows the name of a tool from the arguments: the tool parses it.
std::vector<std::string> take_arguments_of_tool(std::vector<std::string>* arguments) {
  if (arguments->empty() || !is_tool(arguments->front())) return {};
  std::vector<std::string> rest(arguments->begin() + 1, arguments->end());
  arguments->resize(1);
  return rest;
}

// The variables, and the keys of options such as --tune, which no command line of the description lists.
int print_description(const Command& farside) {
  std::vector<VariableDescription> variables;
  std::vector<KeyDescription> keys;
  for (const OptionRow& row : option_rows()) {
    std::string variable(row.variable), help = describe_option(row);
    if (row.scope == Scope::kInternal) continue;
    if (!row.is_key()) variables.push_back({variable, std::string(row.name), help});
    else
      keys.push_back(
          {std::string(row.name.substr(0, row.name.find(' '))), std::string(row.key()), std::string(row.value), help});
  }
  fputs(to_json(farside.describe(), FARSIDE_VERSION_TEXT, variables, keys).c_str(), stdout);
  return 0;
}

}  // namespace

int run_farside(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<std::string> for_tool = take_arguments_of_tool(&arguments);
  bool runs_a_program = !arguments.empty() && arguments.front() == "run";
  std::vector<std::string> program = runs_a_program ? take_program(&arguments) : std::vector<std::string>();
  Command farside("farside", "Farside runs unmodified programs with most of their memory on another machine.");
  farside.require_command();
  farside.set_footer(
      "Examples:\n  farside doctor\n  farside run --local 25% -- sort big.txt\n"
      "  farside serve --memory 4G --listen 127.0.0.1:7170");
  add_run_command(farside, program);
  add_ctl_command(farside);
  add_serve_command(farside);
  add_pool_command(farside);
  add_core_command(farside);
  add_doctor_command(farside);
  add_tool_commands(farside, for_tool);
  add_version_command(farside);
  if (asks_for_description(arguments)) return print_description(farside);
  return farside.run(std::move(arguments));
}

}  // namespace farside::cli
