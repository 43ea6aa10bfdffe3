// What `farside run` prints when the program has ended: near memory that was saved, what was lost, what to do, and why
// the program ended. At most four lines; --verbose prints all that applies, and the breakdown of the counters.
#pragma once
#include <algorithm>
#include <string>

#include "abi/options.h"
#include "cli/statistics/far_place.h"
#include "cli/statistics/run_report.h"

namespace farside::cli {

// The server that was started for the run: averages over its looks at what clients stored, in bytes.
struct StoredMean {
  uint64_t looks = 0, bytes = 0, used = 0;  // sums; used: memory that it used, less where pages were compressed
  void add(uint64_t stored, uint64_t memory) { looks++, bytes += stored, used += memory; }
  double used_share() const {
    return bytes == 0 ? 1 : std::min(1.0, static_cast<double>(used) / static_cast<double>(bytes));
  }
  nlohmann::json to_json() const;
};

struct RunEnd {
  int wait_status = 0;
  pid_t program = 0;  // the process that the run started
  FarPlace place = FarPlace::kElsewhere;
  StoredMean stored = {};
  HugePages huge = HugePages::kAuto;
  CoreContent core = CoreContent::kAll;
  bool verbose = false;
};

// Lines that begin with "farside: ".
std::string summary(const RunReport& report, const RunEnd& end);

}  // namespace farside::cli
