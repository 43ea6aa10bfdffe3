// From addresses of a process that has ended to functions and lines, with elfutils: unwinds the copied stacks by the
// programs' unwind tables (by frame pointers where code has none), expands inlined functions, demangles.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/trace/recording.h"

namespace farside::cli::trace {

struct Frame {
  std::string function;  // demangled; "+0x1f" added where no line is known; the module where no function is known
  std::string file;      // "" where no line is known
  int line = 0;
  std::string module;    // path of the executable or library
  bool inlined = false;  // into the frame after it
  bool operator==(const Frame&) const = default;
};

// A line of the program that calls farside_hint or its kin.
struct HintPlace {
  std::string function, file;
  int line = 0;
};

class Symbols {
 public:
  // For the process that left this; it must outlive the object.
  static Result<std::unique_ptr<Symbols>> open(const Process& process);
  virtual ~Symbols() = default;

  // Innermost frame first. Frames of Farside itself are left out.
  virtual std::vector<Frame> stack(const TraceStack& stack) = 0;
  // The frames at an address, inlined ones first. `is_return`: the address after a call.
  virtual std::vector<Frame> frames_at(uint64_t address, bool is_return) = 0;
  // Every inlined call of a hint in code that has debug information.
  virtual std::vector<HintPlace> hint_places() = 0;
};

}  // namespace farside::cli::trace
