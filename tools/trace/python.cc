#include "tools/trace/python.h"

#include <algorithm>

namespace farside::trace {
namespace {

constexpr const char* kEvaluation = "_PyEval_EvalFrameDefault";     // runs a Python function, and those that it calls
constexpr const char* kEnds[] = {"Py_FinalizeEx", "_Py_Finalize"};  // they free all objects after the program's end

// Numbers of 6 bits a byte, the low ones first; bit 6 is set if another byte follows.
uint32_t take_number(std::string_view* from) {
  uint32_t value = 0;
  for (unsigned shift = 0; !from->empty(); shift += 6) {
    auto byte = static_cast<uint8_t>(from->front());
    from->remove_prefix(1);
    if (shift < 32) value |= static_cast<uint32_t>(byte & 63) << shift;
    if (!(byte & 64)) break;
  }
  return value;
}

int take_signed(std::string_view* from) {
  uint32_t value = take_number(from);
  auto size = static_cast<int>(value >> 1);
  return value & 1 ? -size : size;
}

bool is_evaluation(const Frame& frame) { return frame.function.starts_with(kEvaluation); }

Frame without_line(Frame frame) {
  frame.file.clear();
  frame.line = 0;
  return without_offset(std::move(frame));
}

// Without a Python function: what ends the interpreter stands for all that it calls.
std::vector<Frame> from_end(std::vector<Frame> native) {
  for (Frame& frame : native) {
    if (std::none_of(std::begin(kEnds), std::end(kEnds), [&](auto* end) { return frame.function.starts_with(end); }))
      continue;
    frame.function = kEnds[0];
    frame.language = Language::kPython;
    return {without_line(frame)};
  }
  return native;
}

}  // namespace

int python_line(std::string_view lines, int first_line, uint32_t instruction) {
  enum Code { kOneLine = 10, kNoColumns = 13, kLong = 14, kNone = 15 };
  int line = first_line;
  for (uint32_t at = 0; !lines.empty();) {
    auto head = static_cast<uint8_t>(lines.front());
    lines.remove_prefix(1);
    int code = head >> 3 & 15;
    at += 2 * ((head & 7) + 1);
    if (code == kNoColumns || code == kLong) line += take_signed(&lines);
    else if (code >= kOneLine && code < kNoColumns) line += code - kOneLine;
    bool found = instruction < at;
    if (found) return code == kNone ? 0 : line;
    if (code == kLong) take_number(&lines), take_number(&lines), take_number(&lines);
    else if (code < kNoColumns) lines.remove_prefix(std::min<size_t>(lines.size(), code < kOneLine ? 1 : 2));
  }
  return 0;
}

std::vector<PythonFrame> python_stack(const Process& process, const TraceStack& stack) {
  std::vector<PythonFrame> frames;
  for (uint32_t i = 0; i < stack.python_frames; i++) {
    const TracePythonFrame& recorded = process.python_frames[stack.first_python_frame + i];
    if (recorded.code >= process.python_codes.size()) continue;
    const TracePythonCode* code = &process.python_codes[recorded.code];
    std::string_view text = std::string_view(process.python_text).substr(code->text);
    std::string file(text.substr(0, code->file_bytes));
    std::string name(text.substr(code->file_bytes, code->name_bytes));
    std::string_view lines = text.substr(code->file_bytes + code->name_bytes, code->lines_bytes);
    int line = python_line(lines, static_cast<int>(code->first_line), recorded.instruction);
    if (line == 0) line = static_cast<int>(code->first_line);
    frames.push_back({{name, file, line, file, false, Language::kPython}, recorded.is_entry != 0});
  }
  return frames;
}

std::vector<Frame> merge_python(std::vector<Frame> native, const std::vector<PythonFrame>& python) {
  if (python.empty()) return from_end(std::move(native));
  auto evaluation = std::find_if(native.begin(), native.end(), is_evaluation);
  std::string interpreter = evaluation == native.end() ? "" : evaluation->module;
  std::vector<Frame> merged;
  size_t taken = 0;
  for (Frame& frame : native) {
    if (is_evaluation(frame)) {
      for (bool entry = false; !entry && taken < python.size(); taken++) {
        merged.push_back(python[taken].frame);
        entry = python[taken].is_entry;
      }
    } else if (frame.module != interpreter) {
      merged.push_back(std::move(frame));
    } else if (merged.empty() && !frame.inlined) {
      merged.push_back(without_line(std::move(frame)));
    }
  }
  for (; taken < python.size(); taken++) merged.push_back(python[taken].frame);  // the copy of the stack was cut
  return merged;
}

std::string python_package_path(const std::string& file) {
  for (const char* folder : {"/site-packages/", "/dist-packages/"}) {
    size_t at = file.find(folder);
    if (at != file.npos) return file.substr(at + std::string_view(folder).size());
  }
  size_t library = file.find("/lib/python3");
  size_t end = library == file.npos ? file.npos : file.find('/', library + 5);
  if (end != file.npos) return file.substr(end + 1);
  return file.starts_with("<frozen") ? file : "";
}

}  // namespace farside::trace
