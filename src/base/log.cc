#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/messages.h"
#include "base/os.h"

namespace farside {
namespace {

constexpr size_t kMaxLine = 1024;
constexpr const char* kLevels[] = {"error", "warning", "info", "debug"};

// Set at start-up, before other threads exist.
LogLevel g_level = LogLevel::kWarning;
LogFormat g_format = LogFormat::kPlain;
const char* g_prefix = "";

// A line on the stack. What does not fit is dropped, except its end.
class Line {
 public:
  void add(std::string_view text) {
    size_t fits = std::min(text.size(), room());
    memcpy(bytes_ + used_, text.data(), fits);
    used_ += fits;
  }
  template <typename... Args>
  void add_formatted(fmt::format_string<Args...> format, const Args&... args) {
    auto end = fmt::vformat_to_n(bytes_ + used_, room(), format, fmt::make_format_args(args...));
    used_ += std::min(end.size, room());
  }
  // A string of JSON, in quotation marks and as much of it as fits.
  void add_quoted(std::string_view text) {
    add("\"");
    for (char c : text) {
      if (room() < kEscape) break;
      if (c == '"' || c == '\\') add("\\");
      if (static_cast<unsigned char>(c) < ' ') add_formatted("\\u{:04x}", static_cast<unsigned>(c));
      else add(std::string_view(&c, 1));
    }
    add("\"");
  }
  void write(std::string_view end) {
    memcpy(bytes_ + used_, end.data(), end.size());
    os::write(STDERR_FILENO, bytes_, used_ + end.size());
  }

 private:
  static constexpr size_t kEscape = 8;  // longest character of a string, and its quotation mark
  static constexpr size_t kEnd = 2;     // longest argument of write()
  size_t room() const { return kMaxLine - kEnd - used_; }

  size_t used_ = 0;
  char bytes_[kMaxLine];
};

// 2026-01-31T12:00:00.000Z. gmtime_r() would take a lock of libc.
void add_time(Line* line) {
  namespace chrono = std::chrono;
  auto now = chrono::floor<chrono::milliseconds>(chrono::system_clock::now());
  auto day = chrono::floor<chrono::days>(now);
  chrono::year_month_day date(day);
  auto ms = (now - day).count();
  line->add_formatted("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), ms / 3'600'000,
                      ms / 60'000 % 60, ms / 1000 % 60, ms % 1000);
}

void write_json(LogLevel level, LogFields fields, std::string_view message) {
  Line line;
  line.add("{\"time\":\"");
  add_time(&line);
  line.add_formatted("\",\"level\":\"{}\"", kLevels[static_cast<int>(level)]);
  for (const LogField& field : fields) {
    line.add_formatted(",\"{}\":", field.name);
    if (field.is_number) line.add_formatted("{}", field.number);
    else line.add_quoted(field.text);
  }
  line.add(",\"message\":");
  line.add_quoted(message);
  line.write("}\n");
}

void write_text(LogLevel level, LogFields fields, std::string_view message) {
  Line line;
  line.add(g_prefix);
  line.add("farside: ");
  if (g_format == LogFormat::kText) {
    add_time(&line);
    line.add(" ");
  }
  bool named = g_format == LogFormat::kText || level != LogLevel::kInfo;
  if (named) line.add_formatted("{}: ", kLevels[static_cast<int>(level)]);
  line.add(message);
  for (const LogField& field : fields) {
    line.add_formatted(" {}=", field.name);
    if (field.is_number) line.add_formatted("{}", field.number);
    else line.add(field.text);
  }
  line.write("\n");
}

}  // namespace

void set_log_format(LogFormat format) { g_format = format; }
void set_log_prefix(const char* prefix) { g_prefix = prefix; }
void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

bool log_level_from_name(const char* name, LogLevel* level) {
  for (int i = 0; i < 4; i++) {
    if (strcmp(name, kLevels[i]) != 0) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

void vlog(LogLevel level, LogFields fields, fmt::string_view format, fmt::format_args args) {
  char message[kMaxLine];
  auto end = fmt::vformat_to_n(message, sizeof message, format, args);
  size_t used = std::min(end.size, sizeof message);
  used = append_id(message, used, sizeof message, message_id({format.data(), format.size()}));
  std::string_view text(message, used);
  if (g_format == LogFormat::kJson) write_json(level, fields, text);
  else write_text(level, fields, text);
}

void log_failure(const Status& status, std::string_view family) {
  std::string_view text = status.text();
  bool identified = text.ends_with(']') && text.find(" [F") != text.npos;
  if (identified) log(LogLevel::kError, "{}", text);
  else log(LogLevel::kError, "{} [{}]", text, family);
}

void vdie(fmt::string_view format, fmt::format_args args) {
  vlog(LogLevel::kError, {}, format, args);
  os::exit_group(134);
}

}  // namespace farside
