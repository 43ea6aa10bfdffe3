// `farside plan -p`: what processes would lose with less near memory that run under Farside already. Their pages are
// sampled for a while (abi/control.h), as in a run of `farside plan`.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/run_settings.h"
#include "tools/plan/one_run.h"

namespace farside::plan {

// Samples the process, or those that a launcher or shell has started, for settings.seconds (0: until it ends or a
// signal arrives). The document of plan_one_run(), with "pid" if it still runs. An end of the process is no error.
// Prices are those of the run's link, or of one of its kind. The caller has no threads.
Result<nlohmann::json> plan_running(pid_t pid, const OneRunSettings& settings, const cli::RunSettings& run);

}  // namespace farside::plan
