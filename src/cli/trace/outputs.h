// An analysis as text for people and programs. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "cli/trace/analysis.h"

namespace farside::cli::trace {

// The places that make up `coverage` percent of the faults, with hint lines and what the hints of the program did.
// `directory`: as the user named it, told as the place of the other files.
std::string to_table(const Analysis& analysis, double coverage, const std::string& directory);

// One line a call stack and kind, "program;main (a.c:3);walk (a.c:10);[read] 12", as flame graph tools read it.
std::string to_folded(const Analysis& analysis);

// A picture for a browser: width is share of faults, colour is kind; a click zooms, the mouse tells the figures.
std::string to_flame_graph(const Analysis& analysis);

nlohmann::json to_json(const Analysis& analysis, const std::vector<std::string>& program, double coverage);

}  // namespace farside::cli::trace
