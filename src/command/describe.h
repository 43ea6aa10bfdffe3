// The description of a program's commands as JSON, for scripts/make_manual.py: man pages and shell completions have the
// same source as the help.
#pragma once
#include <string>
#include <vector>

#include "command/command.h"

namespace farside {

// A variable that sets an option.
struct VariableDescription {
  std::string name, flag, help;
};

// A key of an option that takes KEY=VALUE.
struct KeyDescription {
  std::string option, key, value, help;
};

std::string to_json(const CommandDescription& program, const std::string& version = "",
                    const std::vector<VariableDescription>& variables = {},
                    const std::vector<KeyDescription>& keys = {});

// True if the arguments request the description; the option is not shown in any help.
inline bool asks_for_description(const std::vector<std::string>& arguments) {
  return arguments.size() == 1 && arguments[0] == "--describe";
}

// Runs a program that is one command of farside: `farside NAME`. Returns the exit status.
int run_tool(Command& tool, std::vector<std::string> arguments);

}  // namespace farside
