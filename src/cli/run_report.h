// The report of a run, built from the lines of JSON that its processes write: an event when a process begins or becomes
// another program, an event for each program that runs natively, and the statistics of a process when it exits.
#pragma once
#include <sys/types.h>

#include <map>
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
  // Forgets processes without a report that still run: they may write one.
  void forget_running_processes();
  size_t process_count() const { return processes_.size(); }

  // Counters are summed over processes; for peaks, the largest is kept.
  nlohmann::json totals() const;

  // The process with the largest heap: its mode and budget describe the run.
  const nlohmann::json& main_process() const;

  // Machine-readable statistics: the program, its exit status, every process, totals.
  nlohmann::json to_json(const std::vector<std::string>& program, int wait_status) const;

  // The same as text: a few lines, each prefixed with "farside: ". `program` is the process that the run started.
  std::string summary(int wait_status, pid_t program = 0) const;

 private:
  void add_event(const std::string& event, const nlohmann::json& line);
  std::string native_line() const;
  std::string failure_lines() const;
  std::string end_line(int wait_status, pid_t program) const;
  std::string lost_line(pid_t program) const;

  std::vector<nlohmann::json> processes_;
  std::map<uint64_t, std::string> begun_;                            // process id, program: no report yet
  std::vector<nlohmann::json> failures_;                             // of processes that ended without their far memory
  std::map<std::pair<std::string, std::string>, unsigned> natives_;  // program, reason: how often
};

}  // namespace farside::cli
