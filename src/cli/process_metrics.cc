#include "cli/process_metrics.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/bits.h"
#include "report/machine.h"

namespace farside::cli {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Field `index` of /proc/self/stat, counted from 1. The program's name, field 2, may contain spaces.
uint64_t stat_field(unsigned index) {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  size_t at = line.rfind(')');
  for (unsigned field = 2; field < index && at != line.npos; field++) at = line.find(' ', at + 1);
  return at == line.npos ? 0 : strtoull(line.c_str() + at + 1, nullptr, 10);
}

double start_time() {
  std::ifstream file("/proc/uptime");
  double uptime = 0;
  file >> uptime;
  double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - uptime + static_cast<double>(stat_field(22)) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void append_build_info(Exposition* out) {
  out->begin("farside_build_info", "gauge", "The version of farside; the value is 1.");
  out->sample(1, {{"version", FARSIDE_VERSION_TEXT}, {"commit", build_commit()}});
}

void append_process_metrics(Exposition* out) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::filesystem::directory_iterator descriptors("/proc/self/fd");
  out->counter("process_cpu_seconds_total", "Processor time, user and system.",
               seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
  out->gauge("process_resident_memory_bytes", "Resident memory.", stat_field(24) * kPageSize);
  out->gauge("process_virtual_memory_bytes", "Addresses in use.", stat_field(23));
  out->gauge("process_open_fds", "Open descriptors.", std::distance(descriptors, {}) - 1);
  out->gauge("process_max_fds", "Limit on open descriptors.", static_cast<uint64_t>(limit.rlim_cur));
  out->gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", start_time());
}

}  // namespace farside::cli
