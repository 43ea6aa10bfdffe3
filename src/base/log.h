// One-line messages on standard error, and the checks that stay in every build. A line is formatted on the stack and
// written with one system call: no lock, no heap, so both may be used inside a signal handler.
#pragma once
#include <fmt/core.h>

namespace farside {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above this level are dropped. Read from FARSIDE_LOG (error, warning, info, debug) at start; default warning.
void set_log_level(LogLevel level);
LogLevel log_level();
bool log_level_from_name(const char* name, LogLevel* level);

void vlog(LogLevel level, fmt::string_view format, fmt::format_args args);
[[noreturn]] void vdie(fmt::string_view format, fmt::format_args args);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (static_cast<int>(level) <= static_cast<int>(log_level())) vlog(level, format, fmt::make_format_args(args...));
}

// Prints "farside: <message>" and ends the whole process with status 134 without running exit handlers: those could
// touch memory that is gone. For broken invariants and for memory that is lost.
template <typename... Args>
[[noreturn]] void die(fmt::format_string<Args...> format, Args&&... args) {
  vdie(format, fmt::make_format_args(args...));
}

}  // namespace farside

#define FARSIDE_CHECK(condition)                                                     \
  do {                                                                               \
    if (__builtin_expect(!(condition), 0))                                           \
      ::farside::die("internal error at {}:{}: {}", __FILE__, __LINE__, #condition); \
  } while (0)

#ifdef FARSIDE_EXPENSIVE_CHECKS
#define FARSIDE_DCHECK(condition) FARSIDE_CHECK(condition)
#else
#define FARSIDE_DCHECK(condition) ((void)0)
#endif
