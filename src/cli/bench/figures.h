// Small sums over measured figures, and what a benchmark was measured on.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace farside::cli::bench {

// The value below which the given share of the values lies; 0 without values. Reorders them.
template <typename T>
T quantile(std::vector<T>& values, double share);

double median(std::vector<double> values);

// Median and extremes, as {"median", "min", "max", "runs"}.
nlohmann::json summary(const std::vector<double>& runs);

// Something that the benchmark should show, and whether it did.
struct Goal {
  std::string name;
  double measured;
  double limit;
  bool at_least;  // measured >= limit, else measured <= limit
  std::string unit;
  bool met() const { return at_least ? measured >= limit : measured <= limit; }
  std::string text() const;  // "met     random read, shm against zram swap: 2.4x (goal: at least 2.0x)"
  nlohmann::json to_json() const;
};

// Processor, cores, kernel, memory, load, commit, date: what a figure means nothing without.
nlohmann::json machine_json();
std::string machine_text(const nlohmann::json& machine);

// A table whose first column is aligned left and all others right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// "about 3 min left": after `seconds` for `done` of `steps`. "" before the first is done.
std::string time_left_text(size_t done, size_t steps, double seconds);

// Says on standard error what is going on: one line that is overwritten on a terminal, else a line for each step.
class Progress {
 public:
  Progress(size_t steps, bool quiet);
  ~Progress();
  void step(const std::string& what);

 private:
  size_t steps_, done_ = 0;  // done_ counts the one that is going on
  uint64_t started_ns_;
  bool quiet_, terminal_;
};

}  // namespace farside::cli::bench
