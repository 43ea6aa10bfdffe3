#include "report/format.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"

namespace farside {

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    if (row.size() > widths.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); i++) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string time_left_text(size_t done, size_t steps, double seconds) {
  if (done == 0 || seconds < 1) return "";
  double left = seconds / static_cast<double>(done) * static_cast<double>(steps - std::min(done, steps));
  return left < 100 ? fmt::format("about {:.0f} s left", left) : fmt::format("about {:.0f} min left", left / 60);
}

Progress::Progress(size_t steps, bool quiet)
    : steps_(steps), started_ns_(now_ns()), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (terminal_ && !quiet_) fputs("\r\033[K", stderr);
}

void Progress::step(const std::string& what) {
  std::string left = time_left_text(done_, steps_, static_cast<double>(now_ns() - started_ns_) / 1e9);
  done_++;
  if (quiet_) return;
  fmt::print(stderr, "{}[{}/{}] {}{}{}{}", terminal_ ? "\r\033[K" : "", done_, steps_, what, left.empty() ? "" : "  ",
             left, terminal_ ? "" : "\n");
  fflush(stderr);
}

}  // namespace farside
