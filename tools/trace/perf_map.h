// The map of code that a program generated at run time: /tmp/perf-PID.map, which Node.js (--perf-basic-prof), the JVM
// (-XX:+DumpPerfMapAtExit) and others write for perf. A line is "BEGIN SIZE NAME", with hexadecimal numbers.
#pragma once
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "tools/trace/frame.h"

namespace farside::trace {

class PerfMap {
 public:
  // Of two entries for an address the later one is used: the memory of discarded code is used again.
  explicit PerfMap(std::istream&& map);
  // The function at the address. `program`: the executable, the module of what is the user's own code.
  std::optional<Frame> find(uint64_t address, const std::string& program) const;

 private:
  struct Code {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Code> codes_;
};

// A function from its name in a map: "JS:*pick /src/job.js:12:3" has a file and the line of its beginning.
Frame frame_of_generated(const std::string& name, const std::string& program);

}  // namespace farside::trace
