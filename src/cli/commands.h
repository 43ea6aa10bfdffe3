// The subcommands of `farside`. Each lives in a file of its own and adds itself to the application.
#pragma once
#include <string>
#include <vector>

#include "command/command.h"

namespace farside::cli {

// What the program is and how the command line names the parts of it. `program` is what follows "--" in `farside run`,
// `farside trace`, `farside plan` and `farside track`: it is no business of the option parser.
void add_run_command(Command& parent, std::vector<std::string> program);
void add_trace_command(Command& parent, std::vector<std::string> program);
void add_plan_command(Command& parent, std::vector<std::string> program);
void add_track_command(Command& parent, std::vector<std::string> program);
void add_ctl_command(Command& parent);
void add_serve_command(Command& parent);
void add_pool_command(Command& parent);
void add_doctor_command(Command& parent);
void add_bench_command(Command& parent, std::vector<std::string> arguments);
void add_version_command(Command& parent);

// The whole program behind main().
int run_farside(int argc, const char* const* argv);

}  // namespace farside::cli
