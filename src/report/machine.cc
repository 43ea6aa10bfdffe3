#include "report/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <fstream>

#include "base/bits.h"
#include "base/size.h"
#include "report/commit.h"

namespace farside {
namespace {

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string utc_now() {
  time_t now = time(nullptr);
  tm parts;
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

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

bool memory_files_are_huge(std::string_view setting) {
  auto is = [setting](const char* chosen) { return setting.find(chosen) != std::string_view::npos; };
  return is("[always]") || is("[within_size]") || is("[force]");
}

bool memory_files_are_huge() {
  return memory_files_are_huge(read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
}

std::string build_commit() { return FARSIDE_COMMIT; }

nlohmann::json machine_json() {
  utsname kernel;
  uname(&kernel);
  return {{"processor", processor_model()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel", kernel.release},
          {"memory_bytes", machine_memory().total},
          {"load_average", read_line("/proc/loadavg")},
          {"huge_pages", read_line("/sys/kernel/mm/transparent_hugepage/enabled")},
          {"swap_page_cluster", read_line("/proc/sys/vm/page-cluster")},
          {"commit", build_commit()},
          {"date", utc_now()}};
}

std::string machine_text(const nlohmann::json& machine) {
  auto text = [&](const char* name) { return machine[name].get<std::string>(); };
  return fmt::format("{}, {} cores, {}, Linux {}; commit {}; {}; load {}", text("processor"),
                     machine["cores"].get<long>(), format_size(machine["memory_bytes"].get<uint64_t>()), text("kernel"),
                     text("commit"), text("date"), text("load_average"));
}

}  // namespace farside
