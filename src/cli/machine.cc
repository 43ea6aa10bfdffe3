#include "cli/machine.h"

#include <fstream>

#include "base/bits.h"

namespace farside::cli {

MachineMemory machine_memory() {
  MachineMemory memory;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  uint64_t kib = 0;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == "MemTotal:") memory.total = kib * kKiB;
    if (name == "MemAvailable:") memory.available = kib * kKiB;
  }
  return memory;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace farside::cli
