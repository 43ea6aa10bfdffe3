// What the kernel says about this machine.
#pragma once
#include <cstdint>
#include <string>

namespace farside::cli {

struct MachineMemory {
  uint64_t total = 0;
  uint64_t available = 0;
};
MachineMemory machine_memory();

// First line of a small file under /proc or /sys, "" where it cannot be read.
std::string read_line(const std::string& path);

}  // namespace farside::cli
