// The report of a run, built from the lines of JSON that its processes write: an event when a process begins or becomes
// another program, an event for each program that runs natively, and the statistics of a process when it exits.
#pragma once
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
  // What a process that has ended had when it was last seen. Counts if it has not reported its end, as after SIGKILL.
  void add_last_seen(nlohmann::json process);

  const std::vector<nlohmann::json>& processes() const { return processes_; }
  size_t process_count() const { return processes_.size(); }
  bool has_process(pid_t pid) const;
  // Processes that ended without a report, other than `program`, and were not seen before.
  size_t lost(pid_t program) const;
  bool all_reported() const { return begun_.empty(); }

  // Counters are summed over processes; for peaks, the largest is kept.
  nlohmann::json totals() const;

  // The process with the largest heap: its mode and budget describe the run.
  const nlohmann::json& main_process() const;

  // "go (statically linked, 2 times), sudo (setuid or setgid)"; "" where all programs had far memory.
  std::string natives() const;

  // Why processes ended without their far memory, each reason once: one server is often lost for all of them.
  std::vector<std::string> failures() const;

  // Machine-readable statistics: the program, how it ended and why, every process, totals.
  nlohmann::json to_json(const std::vector<std::string>& program, int wait_status) const;

 private:
  void add_event(const std::string& event, const nlohmann::json& line);
  nlohmann::json reason(int wait_status) const;

  std::vector<nlohmann::json> processes_;
  std::map<uint64_t, std::string> begun_;                            // process id, program: no report yet
  std::vector<nlohmann::json> failures_;                             // of processes that ended without their far memory
  std::map<std::pair<std::string, std::string>, unsigned> natives_;  // program, reason: how often
};

// "the program was ended by signal 9 (Killed)"; "" if it exited.
std::string describe_end(int wait_status);

}  // namespace farside::cli
