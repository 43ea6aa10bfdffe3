// What measure_plan() found, for people. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/chart.h"

namespace farside::cli::plan {

// A share of near memory, and how long the program takes with it.
struct Timed {
  unsigned share;
  double seconds;
};
// The smallest share from which on every one stays within `most` seconds. `points` go from small shares to large ones.
std::optional<unsigned> smallest_within(const std::vector<Timed>& points, double most);

std::string plan_text(const nlohmann::json& document);
std::vector<LineChart> plan_chart(const nlohmann::json& document);

}  // namespace farside::cli::plan
