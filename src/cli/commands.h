// The subcommands of `farside`. Each lives in a file of its own and adds itself to the application.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::cli {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// What the program is and how the command line names the parts of it. `program` is what follows "--" in `farside run`,
// `farside trace`, `farside plan` and `farside track`: it is no business of the option parser.
void add_run_command(CLI::App& app, std::vector<std::string> program);
void add_trace_command(CLI::App& app, std::vector<std::string> program);
void add_plan_command(CLI::App& app, std::vector<std::string> program);
void add_track_command(CLI::App& app, std::vector<std::string> program);
void add_ctl_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_pool_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_version_command(CLI::App& app);

// Runs `action` when the command was given; what it returns is the exit status.
void set_action(CLI::App* command, std::function<int()> action);

// Prints "farside: error: <text>" and returns the exit status for it.
int fail(const Status& status, int exit_status = kExitFailure);

// The whole program behind main().
int run_farside(int argc, const char* const* argv);

}  // namespace farside::cli
