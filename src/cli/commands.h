// The subcommands of `farside`, each defined in its own file or folder, and the entry point behind main().
#pragma once
#include <string>
#include <vector>

#include "command/command.h"

namespace farside::cli {

// Each function adds one subcommand to `parent`. `program` is what follows "--" in `farside run`; it is taken off the
// command line before the option parser runs.
void add_run_command(Command& parent, std::vector<std::string> program);
void add_ctl_command(Command& parent);
void add_serve_command(Command& parent);
void add_core_command(Command& parent);
void add_pool_command(Command& parent);
void add_doctor_command(Command& parent);
void add_version_command(Command& parent);

// Parses the command line and executes the given subcommand. Returns the exit status.
int run_farside(int argc, const char* const* argv);

}  // namespace farside::cli
