// How much memory the process can still take before this machine, or the cgroup that it is in, runs short: what the
// kernel calls available (MemAvailable), and what is left below the lowest limit of the memory controller (version 1 or
// 2) of its cgroup and those above, page cache that can be dropped not counted. A sixteenth of each is kept for others.
#pragma once
#include <cstdint>
#include <string_view>

namespace farside::pager {

class AvailableMemory {
 public:
  // Finds the cgroup's files.
  AvailableMemory() : AvailableMemory("/proc", "/sys/fs/cgroup") {}
  // With other folders in their place, for tests.
  AvailableMemory(std::string_view proc, std::string_view cgroups);

  // Bytes; negative if the memory that is kept for others is in use. About 50 us. Async-signal-safe.
  int64_t left() const;

 private:
  static constexpr unsigned kMaxGroups = 16;
  static constexpr unsigned kPathBytes = 512;

  void add_groups(std::string_view folder, std::string_view path, bool version1);
  int64_t left_in(const char* group) const;

  char meminfo_[kPathBytes];
  char groups_[kMaxGroups][kPathBytes] = {};  // folders with a limit file
  unsigned count_ = 0;
  bool version1_ = false;
};

}  // namespace farside::pager
