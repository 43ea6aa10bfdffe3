// The commands of `farside` that are programs of their own, PREFIX/libexec/farside/farside-NAME: what analyses programs
// and measures Farside needs libraries that nothing needs beside a program that runs far.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "command/command.h"
#include "launch/installation.h"

namespace farside::cli {

bool is_tool(std::string_view name);
std::string tool_help(std::string_view name);  // one line

// Adds a command for each tool. `arguments` is what follows the name of the tool that is given.
void add_tool_commands(Command& parent, const std::vector<std::string>& arguments);

// Becomes the tool. Returns only if it cannot be executed: the exit status of that, which has been reported.
int execute_tool(const Installation& installation, const std::string& name, const std::vector<std::string>& arguments);

}  // namespace farside::cli
