// The machine and its state, as the kernel reports them.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace farside {

struct MachineMemory {
  uint64_t total = 0;
  uint64_t available = 0;
};
MachineMemory machine_memory();

// The first line of a small file, as under /proc or /sys; "" if it cannot be read.
std::string read_line(const std::string& path);

// The commit of the source tree that was built: a hash, with "+changes" if the tree had other changes.
std::string build_commit();

// Processor, cores, kernel, memory, load, commit and date: recorded with every result.
nlohmann::json machine_json();
std::string machine_text(const nlohmann::json& machine);

}  // namespace farside
