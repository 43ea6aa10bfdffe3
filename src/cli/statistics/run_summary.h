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
  // Sums. used: memory that it used, less where pages were compressed; overflow: of bytes, in the file
  uint64_t looks = 0, bytes = 0, used = 0, overflow = 0;
  void add(uint64_t stored, uint64_t memory, uint64_t in_file) {
    looks++, bytes += stored, used += memory, overflow += in_file;
  }
  double used_share() const { return share_of(used, bytes, 1); }
  double file_share() const { return share_of(overflow, bytes, 0); }
  // To which what is not in the file was compressed.
  double packed_share() const { return share_of(used, bytes - std::min(overflow, bytes), 1); }
  nlohmann::json to_json() const;

 private:
  static double share_of(uint64_t part, uint64_t all, double of_none) {
    return all == 0 ? of_none : std::min(1.0, static_cast<double>(part) / static_cast<double>(all));
  }
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
