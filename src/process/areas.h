// The mappings of another process, from /proc/PID/maps, and the selection of those to track.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace farside::process {

// The content of a page before the program first writes it.
enum class Backing {
  kZeros,       // zeros: private anonymous memory, shared memory
  kFile,        // the file's content: a private mapping of a file
  kSharedFile,  // its content when it was first read: other processes write it, too
  kDevice,      // not tracked
};

struct Area {
  uint64_t begin = 0, end = 0;
  bool writable = false, executable = false, shared = false;
  Backing backing = Backing::kZeros;
  uint64_t offset = 0;  // in the file
  uint64_t inode = 0;
  std::string name;  // path of the file, or a name in brackets; "": none

  uint64_t bytes() const { return end - begin; }
};

std::vector<Area> parse_areas(std::string_view maps);

// In order of addresses. Empty for a process that is exiting.
Result<std::vector<Area>> read_areas(pid_t pid);

// Keeps the areas that the program can write now and those that were tracked before: an area that was writable may be
// read-only now.
std::vector<Area> areas_to_track(std::vector<Area> areas, const std::vector<Area>& tracked_before);

}  // namespace farside::process
