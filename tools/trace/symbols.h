// Maps addresses of a process that has ended to functions and lines, with elfutils. Unwinds the copied stacks by unwind
// tables (by frame pointers in code without them), expands inlined functions, demangles.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/trace/recording.h"

namespace farside::trace {

struct Frame {
  std::string function;  // demangled; with "+0x1f" if no line is known; the module if no function is known
  std::string file;      // "" if no line is known
  int line = 0;
  std::string module;    // path of the executable or library
  bool inlined = false;  // into the frame after it
  bool python = false;   // a function of Python; its module is its file
  bool operator==(const Frame&) const = default;
};

// The function alone, which many addresses have in common.
inline Frame without_offset(Frame frame) {
  if (frame.line == 0) frame.function.erase(std::min(frame.function.rfind("+0x"), frame.function.size()));
  return frame;
}

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
