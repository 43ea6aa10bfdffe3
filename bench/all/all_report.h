// What `farside bench all` measured, for people. Pure functions.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/all/results.h"
#include "report/chart.h"

namespace farside::bench {

// Throughput of an ideal system (plan/ideal.h) as a share of the native one, from the faults of the far runs. The model
// is of the whole job, filling included, as the faults are.
std::optional<double> ideal_throughput(const nlohmann::json& document, const std::string& app, unsigned share);

// Tables for each application of the list, then notes and problems.
std::string all_text(const nlohmann::json& document, const TaskList& list);

// Name of the file to panels: for each application throughput by share, and time lines and latencies where it has them.
std::map<std::string, std::vector<LineChart>> all_charts(const nlohmann::json& document, const TaskList& list);

}  // namespace farside::bench
