// The variables that Farside passes on to the processes of a run by itself. They are no options.
#pragma once
#include <string_view>

namespace farside {

inline constexpr char kRunVariable[] = "FARSIDE_RUN_FD";             // number of the descriptor of run_block.h
inline constexpr char kAnnounceVariable[] = "FARSIDE_ANNOUNCE";      // the first process prints its fault mode
inline constexpr char kStaticVariable[] = "FARSIDE_STATIC_PROGRAM";  // the program that static_loader is to execute

constexpr bool is_run_variable(std::string_view name) {
  return name == kRunVariable || name == kAnnounceVariable || name == kStaticVariable;
}

}  // namespace farside
