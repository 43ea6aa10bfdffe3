// Reads the file that the recorder wrote: one Process per block (abi/trace_file.h).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "abi/trace_file.h"
#include "base/status.h"

namespace farside::trace {

struct Process {
  TraceHeader header = {};
  std::vector<TraceEntry> entries;
  std::map<uint64_t, TraceStack> stacks;  // by key
  std::vector<TraceSite> sites;           // indexed by number
  std::vector<TraceHint> hints;
  std::vector<TracePythonCode> python_codes;
  std::vector<TracePythonFrame> python_frames;
  std::string stack_bytes;
  std::string python_text;
  std::string maps;     // text of /proc/PID/maps at the end of the process
  std::string program;  // path of the executable
};

struct Recording {
  std::vector<Process> processes;
  bool cut_short = false;  // the last block is incomplete
};

// ENOENT if no process wrote a block.
Result<Recording> read_recording(const std::string& path);

}  // namespace farside::trace
