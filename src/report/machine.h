// What the kernel reports about this machine.
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

// First line of a small file under /proc or /sys, "" where it cannot be read.
std::string read_line(const std::string& path);

// Of the source tree that was built: a hash, with "+changes" where files differed from it.
std::string build_commit();

// Processor, cores, kernel, memory, load, commit, date: the context of every measured figure.
nlohmann::json machine_json();
std::string machine_text(const nlohmann::json& machine);

}  // namespace farside
