// Looks at the processes of this user that run under Farside, through their control pages. Rates and pressure come from
// the difference of two reports. No look waits for a process: each reads what the last one requested.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/control_client.h"

namespace farside::top {

struct Row {
  uint64_t pid = 0, run = 0;  // run: process ID of the launcher; 0 where it has ended
  std::string program = {}, transport = {}, advice = {};
  uint64_t near = 0, far = 0, budget = 0;  // bytes
  double faults = 0, bytes = 0;            // a second, since the last look but one
  double pressure = 0;                     // the part of the last 10 s that was lost in faults
  bool replies = true;
};

// What the counters of a process gained since `before`; sizes are those of `now`.
nlohmann::json difference(const nlohmann::json& now, const nlohmann::json& before);

// Reports of one process, the oldest first: those of the last 10 s, and one that is older.
Row row_of(const std::deque<nlohmann::json>& reports);

class Sampler {
 public:
  // Finds processes, reads their reports and requests new ones.
  void look();
  std::vector<Row> rows() const;

 private:
  struct Process {
    std::unique_ptr<ControlledProcess> control;
    uint64_t run = 0;
    std::deque<nlohmann::json> reports;
    unsigned silent_looks = 0;
  };
  static void read(uint64_t pid, Process* process);

  std::map<pid_t, Process> processes_;
};

}  // namespace farside::top
