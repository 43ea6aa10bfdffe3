// The text and the charts of predict_plan()'s document. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/chart.h"

namespace farside::plan {

std::string predict_text(const nlohmann::json& document);
// Misses by share for each block size, and throughput by share for each system.
std::vector<LineChart> predict_charts(const nlohmann::json& document);

}  // namespace farside::plan
