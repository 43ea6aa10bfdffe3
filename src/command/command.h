// The frame of a command-line program with subcommands: parsing, exit statuses, and errors in one line.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// Runs `action` when the command was given; its result is the exit status.
void set_action(CLI::App* command, std::function<int()> action);

// Prints "farside: error: <text>" and returns the exit status for it.
int fail(const Status& status, int exit_status = kExitFailure);

// Parses the arguments (without the program's name) and runs the given command's action. Returns the exit status.
int run_command(CLI::App& app, std::vector<std::string> arguments);

}  // namespace farside
