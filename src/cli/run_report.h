// What a run did, from the lines of JSON that its processes leave at their exit.
#pragma once
#include "report/statistics.h"
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace farside::cli {

class RunReport {
 public:
  // Lines that are no JSON object (a process killed while it wrote) are left out; so is a missing file.
  static RunReport read(const std::string& path);

  void add_line(std::string_view line);
  size_t process_count() const { return processes_.size(); }

  // Counters are summed over processes; of peaks, the largest stands.
  nlohmann::json totals() const;

  // The process with the largest heap: the one that people mean when they ask for a mode, a budget or a peak.
  const nlohmann::json& main_process() const;

  // Statistics for programs: what was run, how it ended, every process, totals.
  nlohmann::json to_json(const std::vector<std::string>& program, int wait_status) const;

  // The same for people: a few lines, each with "farside: " before it.
  std::string summary(int wait_status) const;

 private:
  std::vector<nlohmann::json> processes_;
};

}  // namespace farside::cli
