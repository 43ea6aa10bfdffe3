// What predict_plan() found, for people. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/chart.h"

namespace farside::cli::plan {

std::string predict_text(const nlohmann::json& document);
// Misses by share for each size of blocks, and throughput by share on each system.
std::vector<LineChart> predict_charts(const nlohmann::json& document);

}  // namespace farside::cli::plan
