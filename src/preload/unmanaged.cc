#include "preload/unmanaged.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/os.h"

namespace farside::preload {
namespace {

// The lines of a file, through a buffer. Longer ones are cut.
class Lines {
 public:
  explicit Lines(const char* path)
      : memory_(static_cast<Memory*>(os::map_near(sizeof(Memory)))),
        fd_(memory_ ? os::open(path, O_RDONLY | O_CLOEXEC) : -1) {}
  ~Lines() {
    if (fd_ >= 0) os::close(fd_);
    if (memory_) os::unmap(memory_, sizeof(Memory));
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // The next line without its end, or nullptr.
  const char* next() {
    size_t length = 0;
    for (;;) {
      if (at_ == filled_ && !fill()) return nullptr;
      char c = memory_->buffer[at_++];
      if (c == '\n') break;
      if (length < sizeof memory_->line - 1) memory_->line[length++] = c;
    }
    memory_->line[length] = 0;
    return memory_->line;
  }

 private:
  // The caller's stack may be far memory, into which a system call of Farside's cannot read.
  struct Memory {
    char buffer[4096], line[512];
  };
  bool fill() {
    ssize_t n = fd_ < 0 ? 0 : os::read(fd_, memory_->buffer, sizeof memory_->buffer);
    at_ = 0;
    filled_ = n > 0 ? static_cast<size_t>(n) : 0;
    return filled_ > 0;
  }
  Memory* memory_;
  int fd_;
  size_t at_ = 0, filled_ = 0;
};

// One mapping of the process, as smaps describes it.
struct MappingInfo {
  uint64_t begin = 0;
  bool is_shared = false;
  bool has_file = false;  // not one that exists in memory only
  uint64_t anonymous = 0, proportional = 0;
  bool is_farsides = false;  // excluded from core dumps, as Farside's own memory is
};

// Parses "begin-end perms offset device inode path".
bool parse_head(const char* line, MappingInfo* info) {
  char* end;
  uint64_t begin = strtoull(line, &end, 16);
  if (end == line || *end != '-') return false;
  *info = {};
  info->begin = begin;
  const char* permissions = strchr(line, ' ');
  info->is_shared = permissions && strlen(permissions) > 4 && permissions[4] == 's';
  const char* path = strchr(line, '/');
  bool in_memory = path && (strncmp(path, "/dev/zero", 9) == 0 || strncmp(path, "/memfd:", 7) == 0 ||
                            strncmp(path, "/SYSV", 5) == 0 || strncmp(path, "/dev/shm/", 9) == 0);
  info->has_file = path && !in_memory;
  return true;
}

// Parses "Name:   123 kB".
bool parse_value(const char* line, const char* name, uint64_t* bytes) {
  size_t length = strlen(name);
  if (strncmp(line, name, length) != 0) return false;
  *bytes = strtoull(line + length, nullptr, 10) * kKiB;
  return true;
}

void count(const MappingInfo& m, pager::Pager& pager, UnmanagedMemory* sums) {
  bool is_far = pager.in_space(m.begin) || pager.is_committed(reinterpret_cast<std::byte*>(m.begin), kPageSize);
  if (m.begin == 0 || m.is_farsides) return;
  if (m.is_shared) {
    if (!m.has_file) sums->shared += m.proportional;
  } else if (m.has_file) {
    sums->data += m.anonymous;
  } else if (!is_far) {
    sums->private_ += m.anonymous;
  }
}

UnmanagedMemory measure(pager::Pager& pager) {
  UnmanagedMemory sums;
  Lines lines("/proc/self/smaps");
  MappingInfo mapping;
  while (const char* line = lines.next()) {
    MappingInfo next;
    if (parse_value(line, "Anonymous:", &mapping.anonymous)) continue;
    if (parse_value(line, "Pss:", &mapping.proportional)) continue;
    if (strncmp(line, "VmFlags:", 8) == 0) {
      mapping.is_farsides = strstr(line, " dd") != nullptr;
      count(mapping, pager, &sums);
      mapping = {};
    } else if (parse_head(line, &next)) {
      mapping = next;
    }
  }
  return sums;
}

// Peaks of the process. Measured by an evictor, and by the thread that reports.
std::atomic<uint64_t> g_shared{0}, g_private{0}, g_data{0};

uint64_t raise(std::atomic<uint64_t>& peak, uint64_t value) {
  uint64_t before = peak.load(std::memory_order_relaxed);
  while (before < value && !peak.compare_exchange_weak(before, value, std::memory_order_relaxed)) {}
  return std::max(before, value);
}

// Bytes of the process that are in memory, of whatever kind.
uint64_t resident_bytes() {
  Lines lines("/proc/self/statm");
  const char* line = lines.next();
  const char* second = line ? strchr(line, ' ') : nullptr;
  return second ? strtoull(second, nullptr, 10) * kPageSize : 0;
}

}  // namespace

UnmanagedMemory unmanaged_peaks(pager::Pager& pager) {
  UnmanagedMemory now = measure(pager);
  return {raise(g_shared, now.shared), raise(g_private, now.private_), raise(g_data, now.data)};
}

void watch_unmanaged(pager::Pager& pager) {
  constexpr uint64_t kPauseNs = 100'000'000, kStep = 8 * kMiB;
  static uint64_t looked_ns = 0, measured_at = 0;  // of the one evictor that calls this
  uint64_t now = now_ns();
  if (now - looked_ns < kPauseNs) return;
  looked_ns = now;
  uint64_t resident = resident_bytes();
  if (resident < measured_at + measured_at / 4 + kStep) return;
  measured_at = resident;
  unmanaged_peaks(pager);
}

void reset_unmanaged() {
  for (auto* peak : {&g_shared, &g_private, &g_data}) peak->store(0);
}

}  // namespace farside::preload
