// The machine and its state, as the kernel reports them.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace farside {

struct MachineMemory {
  uint64_t total = 0;
  uint64_t available = 0;
};
MachineMemory machine_memory();

// The first line of a small file, as under /proc or /sys; "" if it cannot be read.
std::string read_line(const std::string& path);

// Whether the kernel gives memory files, such as those of memory servers, huge pages without advice. `setting`:
// the content of /sys/kernel/mm/transparent_hugepage/shmem_enabled.
bool memory_files_are_huge(std::string_view setting);
bool memory_files_are_huge();

// The commit of the source tree that was built: a hash, with "+changes" if the tree had other changes.
std::string build_commit();

// Processor, cores, kernel, memory, load, commit and date: recorded with every result.
nlohmann::json machine_json();
std::string machine_text(const nlohmann::json& machine);

}  // namespace farside
