// What `farside run` prints when the program has ended: near memory that was saved, what was lost, what to do, and why
// the program ended. At most four lines; --verbose prints all that applies, and the breakdown of the counters.
#pragma once
#include <string>

#include "abi/options.h"
#include "cli/statistics/far_place.h"
#include "cli/statistics/run_report.h"

namespace farside::cli {

struct RunEnd {
  int wait_status = 0;
  pid_t program = 0;  // the process that the run started
  FarPlace place = FarPlace::kElsewhere;
  HugePages huge = HugePages::kAuto;
  CoreContent core = CoreContent::kAll;
  bool verbose = false;
};

// Lines that begin with "farside: ".
std::string summary(const RunReport& report, const RunEnd& end);

}  // namespace farside::cli
