// One-line messages on standard error, and the checks of invariants. A line is formatted on the stack, cut to 1 KiB,
// and written by one system call, without locks and without memory allocation. Thread-safe and async-signal-safe,
// except set_log_level().
#pragma once
#include <fmt/core.h>

namespace farside {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above this level are dropped. FARSIDE_LOG (error, warning, info, debug) sets it at start; default: warning.
void set_log_level(LogLevel level);
LogLevel log_level();
bool log_level_from_name(const char* name, LogLevel* level);

void vlog(LogLevel level, fmt::string_view format, fmt::format_args args);
[[noreturn]] void vdie(fmt::string_view format, fmt::format_args args);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (static_cast<int>(level) <= static_cast<int>(log_level())) vlog(level, format, fmt::make_format_args(args...));
}

// Prints "farside: error: <message>" and ends the process with status 134. Exit handlers are not run, because they
// could access memory that is lost. For violated invariants and lost memory.
template <typename... Args>
[[noreturn]] void die(fmt::format_string<Args...> format, Args&&... args) {
  vdie(format, fmt::make_format_args(args...));
}

}  // namespace farside

// Checked in every build.
#define FARSIDE_CHECK(condition)                                                     \
  do {                                                                               \
    if (__builtin_expect(!(condition), 0))                                           \
      ::farside::die("internal error at {}:{}: {}", __FILE__, __LINE__, #condition); \
  } while (0)

// Checked in the debug and sanitizer builds; elsewhere the condition is not evaluated.
#ifdef FARSIDE_EXPENSIVE_CHECKS
#define FARSIDE_DCHECK(condition) FARSIDE_CHECK(condition)
#else
#define FARSIDE_DCHECK(condition) ((void)0)
#endif
