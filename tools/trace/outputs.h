// The outputs of an analysis. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tools/trace/analysis.h"

namespace farside::trace {

// The table of the places that together have `coverage` percent of the faults, with hints to insert and statistics of
// the program's hints. `directory`: as given by the user, printed as the location of the other files.
std::string to_table(const Analysis& analysis, double coverage, const std::string& directory);

// One line per call stack and kind, as "program;main (a.c:3);walk (a.c:10);[read] 12": the format of flame graph tools.
std::string to_folded(const Analysis& analysis);

// A flame graph as SVG with a script: width is the share of faults, colour is the kind; a click zooms, a tooltip shows
// the figures. `command`: the program and its arguments, for the heading.
std::string to_flame_graph(const Analysis& analysis, const std::string& command);

nlohmann::json to_json(const Analysis& analysis, const std::vector<std::string>& program, double coverage);

}  // namespace farside::trace
