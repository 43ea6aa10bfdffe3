// The text and the chart of measure_plan()'s document. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/chart.h"

namespace farside::plan {

// A share of near memory, and the program's time with it.
struct Timed {
  unsigned share;
  double seconds;
};
// The smallest share from which on all points stay within `limit` seconds. `points` are in order of shares.
std::optional<unsigned> smallest_within(const std::vector<Timed>& points, double limit);

// For a chart of throughput: the slowdown that was accepted, and the share that the answer names, if there is one.
std::vector<LineChart::Series> answer_lines(const nlohmann::json& document, std::optional<double> share);

std::string plan_text(const nlohmann::json& document);
std::vector<LineChart> plan_chart(const nlohmann::json& document);

}  // namespace farside::plan
