// The mappings of another process, as /proc/PID/maps tells them, and which of them are worth tracking.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace farside::cli::track {

// What a page holds before the program first writes it.
enum class Backing {
  kZeros,       // private anonymous memory, shared memory
  kFile,        // a private mapping of a file: what the file holds
  kSharedFile,  // whatever it held when it was first seen: others write it, too
  kDevice,      // not tracked
};

struct Area {
  uint64_t begin = 0, end = 0;
  bool writable = false, executable = false, shared = false;
  Backing backing = Backing::kZeros;
  uint64_t offset = 0;  // in the file
  uint64_t inode = 0;
  std::string name;  // file, or a name in brackets; "" for none

  uint64_t bytes() const { return end - begin; }
};

std::vector<Area> parse_areas(std::string_view maps);

// In order of addresses. Empty for a process that is ending.
Result<std::vector<Area>> read_areas(pid_t pid);

// Keeps those that the program can write now, or that were tracked before: what it could write until a moment ago may
// be read-only now.
std::vector<Area> areas_to_track(std::vector<Area> areas, const std::vector<Area>& tracked_before);

}  // namespace farside::cli::track
