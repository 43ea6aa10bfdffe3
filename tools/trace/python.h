// Frames of CPython: their names and lines, and their places in a native call stack.
#pragma once
#include <string_view>
#include <vector>

#include "tools/trace/symbols.h"

namespace farside::trace {

// The line of an instruction, by the line table of CPython 3.11 to 3.13 (Objects/locations.md there). `instruction`: in
// bytes from the start of the code. 0: the instruction has none.
int python_line(std::string_view lines, int first_line, uint32_t instruction);

struct PythonFrame {
  Frame frame;
  bool is_entry = false;  // the interpreter's C function was called for it
};

// The frames of a stack, innermost first. Their module is the source file.
std::vector<PythonFrame> python_stack(const Process& process, const TraceStack& stack);

// Replaces the frames of the interpreter by those of Python. Of the interpreter's own functions the innermost is kept,
// where the fault is in it. `native`: innermost first.
std::vector<Frame> merge_python(std::vector<Frame> native, const std::vector<PythonFrame>& python);

// Source or library that comes with Python or is installed for it, and its path there, as "json/decoder.py"; or "".
std::string python_package_path(const std::string& file);

}  // namespace farside::trace
