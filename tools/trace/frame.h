// A function and a line of a call stack.
#pragma once
#include <algorithm>
#include <string>

namespace farside::trace {

enum class Language {
  kNative,
  kPython,     // the module of a function is its file
  kGenerated,  // code that was generated at run time
};

struct Frame {
  std::string function;  // demangled; with "+0x1f" if no line is known; the module if no function is known
  std::string file;      // "" if no line is known
  int line = 0;
  std::string module;    // path of the executable or library
  bool inlined = false;  // into the frame after it
  Language language = Language::kNative;
  bool operator==(const Frame&) const = default;
};

// The function alone, which many addresses have in common.
inline Frame without_offset(Frame frame) {
  if (frame.line == 0) frame.function.erase(std::min(frame.function.rfind("+0x"), frame.function.size()));
  return frame;
}

}  // namespace farside::trace
