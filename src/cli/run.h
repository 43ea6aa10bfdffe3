// Runs a program under Farside, from the checks before its start to the report after its end. `farside run` does only
// this; other commands that run a program call the same functions.
#pragma once
#include <string>
#include <vector>

#include "cli/run_settings.h"

namespace farside::cli {

enum class StaticPrograms { kRefused, kAccepted };

// Path of the program if Farside can run it. Error messages recommend `command`. On error, *exit_status is the exit
// status of the command.
Result<std::string> find_runnable(const char* command, const std::vector<std::string>& program, int* exit_status,
                                  StaticPrograms static_programs = StaticPrograms::kRefused);

// Runs the program to its end, prints a summary to standard error unless --quiet, and writes the file of --stats. Error
// messages recommend `command`. Returns the program's wait status; if it could not be run, *exit_status is the exit
// status of the command.
Result<int> run_program(const char* command, const GivenOptions& given, const std::vector<std::string>& program,
                        int* exit_status);

}  // namespace farside::cli
