// One-line messages on standard error, and the checks of invariants. A line is formatted on the stack, cut to 1 KiB,
// and written by one system call, without locks and without memory allocation. Thread-safe and async-signal-safe,
// except the functions that set something.
//
//   kPlain  farside: warning: text key=value
//   kText   farside: 2026-01-31T12:00:00.000Z warning: text key=value
//   kJson   {"time":"2026-01-31T12:00:00.000Z","level":"warning","message":"text","key":"value"}
#pragma once
#include <fmt/core.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/status.h"

namespace farside {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above this level are dropped. --tune log (error, warning, info, debug) sets it at start; default: warning.
void set_log_level(LogLevel level);
LogLevel log_level();
bool log_level_from_name(const char* name, LogLevel* level);

enum class LogFormat { kPlain, kText, kJson };
void set_log_format(LogFormat format);
// Written before each line, to erase a status line of a terminal. A literal; not with kJson.
void set_log_prefix(const char* prefix);

// What a message is about: a text or a number.
struct LogField {
  LogField(std::string_view key, std::string_view value) : name(key), text(value) {}
  LogField(std::string_view key, std::unsigned_integral auto value) : name(key), number(value), is_number(true) {}
  std::string_view name, text;
  uint64_t number = 0;
  bool is_number = false;
};
using LogFields = std::initializer_list<LogField>;

void vlog(LogLevel level, LogFields fields, fmt::string_view format, fmt::format_args args);
[[noreturn]] void vdie(fmt::string_view format, fmt::format_args args);

// Logs an error whose text may have no identifier: then it gets that of the family.
void log_failure(const Status& status, std::string_view family);

template <typename... Args>
void log_with(LogLevel level, LogFields fields, fmt::format_string<Args...> format, Args&&... args) {
  if (static_cast<int>(level) > static_cast<int>(log_level())) return;
  vlog(level, fields, format, fmt::make_format_args(args...));
}

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (static_cast<int>(level) <= static_cast<int>(log_level())) vlog(level, {}, format, fmt::make_format_args(args...));
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
