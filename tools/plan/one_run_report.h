// The text and the chart of plan_one_run()'s document. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/chart.h"

namespace farside::plan {

std::string one_run_text(const nlohmann::json& document);
std::vector<LineChart> one_run_chart(const nlohmann::json& document);

}  // namespace farside::plan
