// The report of a run, built from the lines of JSON that its processes write when they exit.
#pragma once
#include <sys/types.h>
#include "report/statistics.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace farside::cli {

class RunReport {
 public:
  // Lines that are not JSON objects (from a process killed while writing) are ignored, and so is a missing file.
  static RunReport read(const std::string& path);

  void add_line(std::string_view line);
  size_t process_count() const { return processes_.size(); }

  // Counters are summed over processes; for peaks, the largest is kept.
  nlohmann::json totals() const;

  // The process with the largest heap: its mode and budget describe the run.
  const nlohmann::json& main_process() const;

  // Machine-readable statistics: the program, its exit status, every process, totals.
  nlohmann::json to_json(const std::vector<std::string>& program, int wait_status) const;

  // The same as text: a few lines, each prefixed with "farside: ".
  std::string summary(int wait_status) const;

 private:
  std::vector<nlohmann::json> processes_;
};

}  // namespace farside::cli
