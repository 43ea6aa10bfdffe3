// What `farside bench regret` runs: patterns of accesses, applications of bench/apps, and programs that are installed.
// Each is text for a shell, in a folder of its own, and prints the same whenever it runs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace farside::bench {

// In the texts {n} is the number of items, {apps} the folder of the applications, and {far} the launcher.
struct RegretWorkload {
  const char *name, *needs;  // a program that must be there
  uint64_t bytes_per_item;
  const char *prepare, *command;  // makes the input, natively and once; runs the program
};
std::span<const RegretWorkload> regret_workloads();
std::vector<std::string> regret_workload_names();

}  // namespace farside::bench
