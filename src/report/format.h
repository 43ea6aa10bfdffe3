// Text output: tables, and the progress of long work.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace farside {

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

}  // namespace farside
