// The commands of `farside` that are programs of their own, PREFIX/libexec/farside/farside-NAME: what analyses programs
// and measures Farside needs libraries that nothing needs beside a program that runs far.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "launch/installation.h"

namespace farside::cli {

bool is_tool(std::string_view name);
std::string tool_help(std::string_view name);  // one line

// Becomes the tool. Returns only if it cannot be executed: the exit status of that, which has been reported.
int execute_tool(const Installation& installation, const std::string& name, const std::vector<std::string>& arguments);

}  // namespace farside::cli
