#include "tools/trace/recording.h"

#include <fstream>

namespace farside::trace {
namespace {

// A larger count means that the block is invalid.
constexpr uint64_t kMax = uint64_t{1} << 31;

bool read_bytes(std::istream& file, void* to, uint64_t bytes) {
  file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  return file.good();
}

template <typename T>
bool read_table(std::istream& file, uint64_t count, std::vector<T>* table) {
  if (count * sizeof(T) > kMax) return false;
  table->resize(count);
  return read_bytes(file, table->data(), count * sizeof(T));
}

bool read_text(std::istream& file, uint64_t bytes, std::string* text) {
  if (bytes > kMax) return false;
  text->resize(bytes);
  return read_bytes(file, text->data(), bytes);
}

bool is_within(uint64_t first, uint64_t count, uint64_t size) { return first <= size && count <= size - first; }

// Stacks refer to the stack bytes and to Python frames. A stack that would exceed them is kept without content.
void enter_stacks(const std::vector<TraceStack>& stacks, Process* process) {
  for (TraceStack stack : stacks) {
    if (!is_within(stack.offset, stack.bytes, process->stack_bytes.size())) stack.bytes = 0;
    if (!is_within(stack.first_python_frame, stack.python_frames, process->python_frames.size()))
      stack.python_frames = 0;
    process->stacks[stack.key] = stack;
  }
}

bool read_process(std::istream& file, Process* process) {
  TraceHeader& h = process->header;
  if (!read_bytes(file, &h, sizeof h) || h.magic != kTraceMagic || h.version != kTraceVersion) return false;
  std::vector<TraceStack> stacks;
  bool whole = read_table(file, h.entries, &process->entries) && read_table(file, h.stacks, &stacks) &&
               read_table(file, h.sites, &process->sites) && read_table(file, h.hints, &process->hints) &&
               read_table(file, h.python_codes, &process->python_codes) &&
               read_table(file, h.python_frames, &process->python_frames) &&
               read_text(file, h.stack_bytes, &process->stack_bytes) &&
               read_text(file, h.python_text_bytes, &process->python_text) &&
               read_text(file, h.maps_bytes, &process->maps) && read_text(file, h.program_bytes, &process->program);
  if (!whole) return false;
  enter_stacks(stacks, process);
  for (TracePythonCode& c : process->python_codes) {
    uint64_t bytes = uint64_t{c.file_bytes} + c.name_bytes + c.lines_bytes;
    if (!is_within(c.text, bytes, process->python_text.size())) c = {};
  }
  return true;
}

}  // namespace

Result<Recording> read_recording(const std::string& path) {
  Recording recording;
  std::ifstream file(path, std::ios::binary);
  while (file && file.peek() != std::ifstream::traits_type::eof()) {
    Process process;
    recording.cut_short = !read_process(file, &process);
    if (recording.cut_short) break;
    recording.processes.push_back(std::move(process));
  }
  if (!recording.processes.empty()) return recording;
  return Status::error(ENOENT, "no process wrote a trace to {}: none ended by exit() or by returning from main()",
                       path);
}

}  // namespace farside::trace
