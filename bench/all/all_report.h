// The text and the charts of `farside bench all`. Pure functions of its JSON document.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/all/results.h"
#include "measure/chart.h"

namespace farside::bench {

// Throughput of an ideal system (measure/ideal.h) as a share of the native one, computed from the fetches of the far
// runs. The model is of the whole run including the filling of data, because the fetches are counted over the whole
// run.
std::optional<double> ideal_throughput(const nlohmann::json& document, const std::string& app, unsigned share);

// The tables of each application in the list, then notes and problems.
std::string all_text(const nlohmann::json& document, const TaskList& list);

// File name -> panels. Each application has throughput by share, and timelines and latencies where it measures them.
std::map<std::string, std::vector<LineChart>> all_charts(const nlohmann::json& document, const TaskList& list);

}  // namespace farside::bench
