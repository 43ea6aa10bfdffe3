// Pressure: the part of the last seconds that a process lost to far memory, from reports that it gave one after the
// other. First touches are no loss, since they cost natively too.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

namespace farside::cli {

class Pressure {
 public:
  static constexpr double kWindows[] = {1, 10, 60};  // seconds

  // What the running processes have now, by process ID. Those that are not among them are forgotten.
  void add(const std::map<uint64_t, nlohmann::json>& running);
  // Of the process that lost most, 0 to 1. A process that is younger than the window counts from its start.
  double over(double seconds) const;

 private:
  struct Sample {
    double seconds = 0, lost = 0;  // since the process began
  };
  std::map<uint64_t, std::deque<Sample>> samples_;  // oldest first; what is older than the longest window is left out
};

}  // namespace farside::cli
