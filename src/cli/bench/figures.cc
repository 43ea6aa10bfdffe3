#include "cli/bench/figures.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/clock.h"
#include "base/size.h"
#include "cli/bench/commit.h"
#include "cli/machine.h"

namespace farside::cli::bench {
namespace {

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string utc_now() {
  time_t now = time(nullptr);
  tm parts;
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

template <typename T>
T quantile(std::vector<T>& values, double share) {
  if (values.empty()) return 0;
  auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}
template double quantile(std::vector<double>&, double);
template uint32_t quantile(std::vector<uint32_t>&, double);

double median(std::vector<double> values) { return quantile(values, 0.5); }

nlohmann::json summary(const std::vector<double>& runs) {
  auto [least, most] = std::minmax_element(runs.begin(), runs.end());
  if (runs.empty()) return nullptr;
  return {{"median", median(runs)}, {"min", *least}, {"max", *most}, {"runs", runs}};
}

std::string Goal::text() const {
  return fmt::format("{:7} {}: {:.2f}{} (goal: at {} {:g}{})", met() ? "met" : "missed", name, measured, unit,
                     at_least ? "least" : "most", limit, unit);
}

nlohmann::json Goal::to_json() const {
  return {{"name", name},         {"measured", measured}, {"limit", limit},
          {"at_least", at_least}, {"unit", unit},         {"met", met()}};
}

nlohmann::json machine_json() {
  utsname kernel;
  uname(&kernel);
  return {{"processor", processor_model()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel", kernel.release},
          {"memory_bytes", machine_memory().total},
          {"load_average", read_line("/proc/loadavg")},
          {"huge_pages", read_line("/sys/kernel/mm/transparent_hugepage/enabled")},
          {"swap_page_cluster", read_line("/proc/sys/vm/page-cluster")},
          {"commit", FARSIDE_COMMIT},
          {"date", utc_now()}};
}

std::string machine_text(const nlohmann::json& machine) {
  auto text = [&](const char* name) { return machine[name].get<std::string>(); };
  return fmt::format("{}, {} cores, {}, Linux {}; commit {}; {}; load {}", text("processor"),
                     machine["cores"].get<long>(), format_size(machine["memory_bytes"].get<uint64_t>()), text("kernel"),
                     text("commit"), text("date"), text("load_average"));
}

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

}  // namespace farside::cli::bench
