// What the recorder left, read back: one Process for each block of the file (heap/trace_file.h).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "abi/trace_file.h"
#include "base/status.h"

namespace farside::cli::trace {

struct Process {
  TraceHeader header = {};
  std::vector<TraceEntry> entries;
  std::map<uint64_t, TraceStack> stacks;  // by key
  std::vector<TraceSite> sites;           // by number
  std::vector<TraceHint> hints;
  std::string stack_bytes;
  std::string maps;     // text of /proc/PID/maps at the end
  std::string program;  // path of the executable
};

struct Recording {
  std::vector<Process> processes;
  bool cut_short = false;  // the last block is not whole
};

// ENOENT where no process left anything.
Result<Recording> read_recording(const std::string& path);

}  // namespace farside::cli::trace
