#include "pager/size/available_memory.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/os.h"

namespace farside::pager {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr int64_t kKept = 16;  // the part that is kept for others
constexpr size_t kTextBytes = 8192;

// The beginning of a file, or "".
std::string_view read_text(const char* path, char (&text)[kTextBytes]) {
  int fd = os::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  ssize_t n = os::read(fd, text, sizeof text);
  os::close(fd);
  return {text, n > 0 ? static_cast<size_t>(n) : 0};
}

// The number after the first `name`, or -1. "max" is no number.
int64_t number_after(std::string_view text, std::string_view name) {
  size_t at = text.find(name);
  if (at == text.npos) return -1;
  at = text.find_first_not_of(' ', at + name.size());
  int64_t value = -1;
  if (at != text.npos) std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value;
}

int64_t read_number(const char* group, const char* file) {
  char path[1024], text[kTextBytes];
  *fmt::format_to_n(path, sizeof path - 1, "{}/{}", group, file).out = 0;
  return number_after(read_text(path, text), "");
}

}  // namespace

AvailableMemory::AvailableMemory(std::string_view proc, std::string_view cgroups) {
  *fmt::format_to_n(meminfo_, sizeof meminfo_ - 1, "{}/meminfo", proc).out = 0;
  char own[kPathBytes], text[kTextBytes], folder[kPathBytes];
  *fmt::format_to_n(own, sizeof own - 1, "{}/self/cgroup", proc).out = 0;
  *fmt::format_to_n(folder, sizeof folder - 1, "{}/memory", cgroups).out = 0;
  std::string_view left = read_text(own, text);
  while (!left.empty()) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    std::string_view controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    bool version1 = controllers == "memory";
    if (version1 || controllers.empty()) add_groups(version1 ? std::string_view(folder) : cgroups, path, version1);
    if (version1) return;
  }
}

// The group and those above it. In a container the path may be one of another namespace: then only the folder is there.
void AvailableMemory::add_groups(std::string_view folder, std::string_view path, bool version1) {
  count_ = 0;
  version1_ = version1;
  const char* limit = version1 ? "memory.limit_in_bytes" : "memory.max";
  for (; count_ < kMaxGroups; path.remove_suffix(path.size() - path.rfind('/'))) {
    while (path.ends_with('/')) path.remove_suffix(1);
    auto group = fmt::format_to_n(groups_[count_], kPathBytes - 1, "{}{}", folder, path);
    *group.out = 0;
    if (group.size < kPathBytes && read_number(groups_[count_], limit) > 0) count_++;
    if (path.empty()) return;
  }
}

int64_t AvailableMemory::left_in(const char* group) const {
  char path[1024], text[kTextBytes];
  int64_t limit = read_number(group, version1_ ? "memory.limit_in_bytes" : "memory.max");
  int64_t used = read_number(group, version1_ ? "memory.usage_in_bytes" : "memory.current");
  if (limit < 0 || used < 0) return kNoLimit;
  *fmt::format_to_n(path, sizeof path - 1, "{}/memory.stat", group).out = 0;
  int64_t dropped = number_after(read_text(path, text), version1_ ? "\ntotal_inactive_file" : "\ninactive_file");
  return limit - limit / kKept - used + std::max<int64_t>(dropped, 0);
}

int64_t AvailableMemory::left() const {
  char text[kTextBytes];
  std::string_view machine = read_text(meminfo_, text);
  int64_t total = number_after(machine, "MemTotal:"), available = number_after(machine, "MemAvailable:");
  int64_t left = total < 0 || available < 0 ? kNoLimit : (available - total / kKept) * 1024;
  for (unsigned i = 0; i < count_; i++) left = std::min(left, left_in(groups_[i]));
  return left;
}

}  // namespace farside::pager
