#include "cli/report.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>
#include <fstream>

#include "base/size.h"

namespace farside::cli {
namespace {
using nlohmann::json;

constexpr const char* kCounters[] = {
    "faults",        "major_faults", "zero_faults",     "protection_faults", "prefetched",
    "prefetch_used", "evictions",    "dirty_evictions", "bytes_fetched",     "bytes_written",
    "wait_frame_us", "fault_us",     "forks",
};
constexpr const char* kPeaks[] = {"near_peak_bytes", "far_peak_bytes", "heap_peak_bytes", "seconds"};

double number(const json& from, const char* name) {
  auto found = from.find(name);
  return found != from.end() && found->is_number() ? found->get<double>() : 0;
}

uint64_t count(const json& from, const char* name) { return static_cast<uint64_t>(number(from, name)); }

std::string text(const json& from, const char* name) {
  auto found = from.find(name);
  return found != from.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string bytes(const json& from, const char* name) { return format_size(count(from, name)); }

std::string share(uint64_t part, uint64_t whole) {
  return whole == 0 ? "none" : fmt::format("{:.0f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string mode_line(const json& process, size_t processes) {
  std::string reason = text(process, "mode_reason");
  std::string line = fmt::format("farside: {}: {} mode", text(process, "program"), text(process, "mode"));
  if (!reason.empty()) line += fmt::format(" ({})", reason);
  line += fmt::format(", {}, {:.1f} s", text(process, "transport"), number(process, "seconds"));
  if (processes > 1) line += fmt::format("; figures are sums over {} processes, peaks those of the largest", processes);
  return line + "\n";
}

std::string memory_line(const json& process, const json& totals) {
  bool lowered = count(process, "near_peak_bytes") > count(process, "local_bytes");  // by farside ctl
  return fmt::format("farside: near {} at most of {} allowed{}, far {} at most; heap {} at most\n",
                     bytes(totals, "near_peak_bytes"), bytes(process, "local_bytes"), lowered ? " in the end" : "",
                     bytes(totals, "far_peak_bytes"), bytes(totals, "heap_peak_bytes"));
}

std::string traffic_lines(const json& totals) {
  uint64_t evictions = count(totals, "evictions"), prefetched = count(totals, "prefetched");
  std::string lines =
      fmt::format("farside: {} faults: {} fetched, {} fresh, {} first writes; {} pages prefetched, {} of them used\n",
                  count(totals, "faults"), count(totals, "major_faults"), count(totals, "zero_faults"),
                  count(totals, "protection_faults"), prefetched, share(count(totals, "prefetch_used"), prefetched));
  lines += fmt::format("farside: {} evictions, {} dirty; {} fetched, {} written\n", evictions,
                       share(count(totals, "dirty_evictions"), evictions), bytes(totals, "bytes_fetched"),
                       bytes(totals, "bytes_written"));
  return lines + fmt::format("farside: {:.2f} s in faults, {:.2f} s of them waiting for a free frame\n",
                             number(totals, "fault_us") / 1e6, number(totals, "wait_frame_us") / 1e6);
}

}  // namespace

RunReport RunReport::read(const std::string& path) {
  RunReport report;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) report.add_line(line);
  return report;
}

void RunReport::add_line(std::string_view line) {
  json process = json::parse(line, nullptr, false);
  if (process.is_object()) processes_.push_back(std::move(process));
}

json RunReport::totals() const {
  json totals;
  for (const char* name : kCounters) totals[name] = uint64_t{0};
  for (const char* name : kPeaks) totals[name] = uint64_t{0};
  for (const json& process : processes_) {
    for (const char* name : kCounters) totals[name] = count(totals, name) + count(process, name);
    for (const char* name : kPeaks) {
      if (number(process, name) > number(totals, name)) totals[name] = process[name];
    }
  }
  return totals;
}

const json& RunReport::main_process() const {
  return *std::max_element(processes_.begin(), processes_.end(), [](const json& a, const json& b) {
    return number(a, "heap_peak_bytes") < number(b, "heap_peak_bytes");
  });
}

json RunReport::to_json(const std::vector<std::string>& program, int wait_status) const {
  json result;
  result["program"] = program;
  result["exit_status"] = WIFEXITED(wait_status) ? json(WEXITSTATUS(wait_status)) : json();
  result["signal"] = WIFSIGNALED(wait_status) ? json(WTERMSIG(wait_status)) : json();
  result["processes"] = processes_;
  result["totals"] = totals();
  return result;
}

std::string RunReport::summary(int wait_status) const {
  std::string lines;
  if (WIFSIGNALED(wait_status)) {
    int signal = WTERMSIG(wait_status);
    lines = fmt::format("farside: the program was ended by signal {} ({}); its own figures are lost\n", signal,
                        strsignal(signal));
  }
  if (processes_.empty()) {
    if (!WIFSIGNALED(wait_status)) lines = "farside: no process left figures: none ended by exit or from main\n";
    return lines;
  }
  const json& process = main_process();
  json sums = totals();
  lines += mode_line(process, processes_.size()) + memory_line(process, sums);
  if (count(sums, "evictions") > 0) return lines + traffic_lines(sums);
  return lines + fmt::format("farside: nothing was evicted: the heap never exceeded --local ({})\n",
                             bytes(process, "local_bytes"));
}

}  // namespace farside::cli
