// Text output: tables, and the progress of long work.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace farside {

// A table whose first column is aligned left and all others right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// The estimated time left, as in "about 3 min left", from the seconds that `done` of `steps` took. "" before the first
// step is done and in the first second.
std::string time_left_text(size_t done, size_t steps, double seconds);

// Progress on standard error: one line that is overwritten on a terminal, otherwise one line per step. Not thread-safe.
class Progress {
 public:
  Progress(size_t steps, bool quiet);
  ~Progress();
  void step(const std::string& what);

 private:
  size_t steps_, done_ = 0;  // done_ includes the current step
  uint64_t started_ns_;
  bool quiet_, terminal_;
};

}  // namespace farside
