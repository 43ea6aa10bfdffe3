#include "preload/unmanaged.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/inherited_fds.h"
#include "base/os.h"

namespace farside::preload {
namespace {

// The lines of an open file from its beginning, through a buffer. Longer ones are cut.
class Lines {
 public:
  explicit Lines(int fd) : memory_(static_cast<Memory*>(os::map_near(sizeof(Memory)))), fd_(fd) {
    os::call(SYS_lseek, fd, 0, SEEK_SET);
  }
  ~Lines() {
    if (memory_) os::unmap(memory_, sizeof(Memory));
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // The next line without its end, or nullptr.
  const char* next() {
    if (!memory_) return nullptr;
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
    ssize_t n = os::read(fd_, memory_->buffer, sizeof memory_->buffer);
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
  bool is_far = pager.table().in_space(m.begin) ||
                pager.addresses().is_committed(reinterpret_cast<std::byte*>(m.begin), kPageSize);
  if (m.begin == 0 || m.is_farsides) return;
  if (m.is_shared) {
    if (!m.has_file) sums->shared += m.proportional;
  } else if (m.has_file) {
    sums->data += m.anonymous;
  } else if (!is_far) {
    sums->private_ += m.anonymous;
  }
}

UnmanagedMemory measure(int smaps, pager::Pager& pager) {
  UnmanagedMemory sums;
  Lines lines(smaps);
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

constexpr uint64_t kStep = 8 * kMiB;  // by which a process grows before it is worth a measurement

int open_smaps() { return os::open("/proc/self/smaps", O_RDONLY | O_CLOEXEC); }

std::atomic<int> g_smaps{-1};
std::atomic<bool> g_measuring{false};
std::atomic<uint64_t> g_shared{0}, g_private{0}, g_data{0};  // peaks

void raise(std::atomic<uint64_t>& peak, uint64_t value) {
  uint64_t before = peak.load(std::memory_order_relaxed);
  while (before < value && !peak.compare_exchange_weak(before, value, std::memory_order_relaxed)) {}
}

// The most that was in memory at any time, of whatever kind. 0 where the stack is not near.
uint64_t peak_resident_bytes() {
  rusage usage = {};
  os::call(SYS_getrusage, RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
}

}  // namespace

void open_unmanaged() {
  if (g_smaps < 0) g_smaps = os::move_fd_high(open_smaps());
}

bool owns_unmanaged_fd(int fd) { return fd >= 0 && fd == g_smaps; }

UnmanagedMemory unmanaged_peaks() { return {g_shared.load(), g_private.load(), g_data.load()}; }

void measure_unmanaged(pager::Pager& pager) {
  if (peak_resident_bytes() < kStep || g_measuring.exchange(true)) return;
  int kept = g_smaps, smaps = kept >= 0 ? kept : open_smaps();
  UnmanagedMemory now = measure(smaps, pager);
  if (smaps >= 0 && smaps != kept) os::close(smaps);
  raise(g_shared, now.shared);
  raise(g_private, now.private_);
  raise(g_data, now.data);
  g_measuring.store(false);
}

void watch_unmanaged(pager::Pager& pager) {
  constexpr uint64_t kPauseNs = 100'000'000;
  static uint64_t looked_ns = 0, measured_at = 0;  // of the one evictor that calls this
  uint64_t now = now_ns();
  if (g_smaps < 0 || now - looked_ns < kPauseNs) return;
  looked_ns = now;
  uint64_t resident = peak_resident_bytes();
  if (resident < measured_at + measured_at / 4 + kStep) return;
  measured_at = resident;
  measure_unmanaged(pager);
}

void reset_unmanaged() {
  if (int kept = g_smaps.exchange(-1); kept >= 0) close_inherited(kept);
  g_measuring.store(false);
  for (auto* peak : {&g_shared, &g_private, &g_data}) peak->store(0);
}

}  // namespace farside::preload
