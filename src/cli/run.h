// A program under Farside, from the checks before its start to the figures after its end: what `farside run` does, for
// the commands that do more with it.
#pragma once
#include <string>
#include <vector>

#include "cli/run_settings.h"

namespace farside::cli {

// The file of a program that Farside can run. `command` is named in advice to the user. If there is none, *exit_status
// is what to end with.
Result<std::string> find_runnable(const char* command, const std::vector<std::string>& program, int* exit_status);

// Runs the program to its end and tells what it did, unless --quiet. `command` is named in advice to the user. Returns
// the program's wait status; if it could not be run, *exit_status is what to end with.
Result<int> run_program(const char* command, const GivenOptions& given, const std::vector<std::string>& program,
                        int* exit_status);

}  // namespace farside::cli
