// Maps addresses of a process that has ended to functions and lines, with elfutils. Unwinds the copied stacks by unwind
// tables (by frame pointers in code without them), expands inlined functions, demangles.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/trace/frame.h"
#include "tools/trace/recording.h"

namespace farside::trace {

// A line of the program with an inlined call of a hint.
struct HintPlace {
  std::string function, file;
  int line = 0;
};

class Symbols {
 public:
  // `process` must outlive the object.
  static Result<std::unique_ptr<Symbols>> open(const Process& process);
  virtual ~Symbols() = default;

  // Innermost frame first, without the frames of Farside itself.
  virtual std::vector<Frame> stack(const TraceStack& stack) = 0;
  // The frames at an address, inlined ones first. `is_return`: the address is a return address.
  virtual std::vector<Frame> frames_at(uint64_t address, bool is_return) = 0;
  // All inlined calls of hints in code with debug information.
  virtual std::vector<HintPlace> hint_places() = 0;
};

}  // namespace farside::trace
