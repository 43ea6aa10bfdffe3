#include "base/log.h"

#include <unistd.h>

#include <cstring>

#include "base/os.h"

namespace farside {
namespace {
// Set once at start-up, before other threads exist.
LogLevel g_level = LogLevel::kWarning;

void write_line(fmt::string_view prefix, fmt::string_view format, fmt::format_args args) {
  char line[1024];
  size_t used = prefix.size();
  memcpy(line, prefix.data(), used);
  size_t room = sizeof line - used - 1;
  auto end = fmt::vformat_to_n(line + used, room, format, args);
  used += end.size < room ? end.size : room;
  line[used++] = '\n';
  os::write(STDERR_FILENO, line, used);
}
}  // namespace

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

bool log_level_from_name(const char* name, LogLevel* level) {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(name, kNames[i]) != 0) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

void vlog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  static constexpr const char* kPrefix[] = {"farside: error: ", "farside: warning: ", "farside: ", "farside: debug: "};
  write_line(kPrefix[static_cast<int>(level)], format, args);
}

void vdie(fmt::string_view format, fmt::format_args args) {
  write_line("farside: error: ", format, args);
  os::exit_group(134);
}

}  // namespace farside
