// The course of a run as a picture: near memory, far memory, budget and pressure, from what the launcher's watch sees.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "cli/statistics/pressure.h"

namespace farside::cli {

class Timeline {
 public:
  // What the running processes have now, by process ID, so many seconds after the first call.
  void add(const std::map<uint64_t, nlohmann::json>& running);
  void add(const std::map<uint64_t, nlohmann::json>& running, double seconds);

  // Sums of the processes over time, and the pressure of the one that lost most.
  std::string to_svg(const std::string& program) const;

 private:
  struct Sample {
    double seconds, near, far, budget, pressure;  // MiB; percent
  };
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Pressure pressure_;
  std::vector<Sample> samples_;
  double distance_ = 0;  // seconds from one sample to the next, at least; grows with the run
};

}  // namespace farside::cli
