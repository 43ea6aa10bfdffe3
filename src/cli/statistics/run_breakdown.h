// The breakdown of a run's counters, as --verbose prints it: events, traffic, and the time of a fault and of an evicted
// page by phase.
#pragma once
#include <string>
#include <vector>

#include "cli/statistics/run_report.h"

namespace farside::cli {

// Lines without an end. report has at least one process.
std::vector<std::string> breakdown(const RunReport& report);

}  // namespace farside::cli
