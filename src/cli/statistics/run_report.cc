#include "cli/statistics/run_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "cli/statistics/report_values.h"
#include "pager/shared/stats.h"

namespace farside::cli {
namespace {
using nlohmann::json;

// Values in addition to the pager's counters: those summed over processes, and those of which the largest is kept.
constexpr const char* kSums[] = {"signal_us",      "return_us",     "lookup_us", "forks", "refused_reservations",
                                 "degraded_slabs", "repaired_slabs"};
constexpr const char* kPeaks[] = {"near_peak_bytes",        "far_peak_bytes",
                                  "heap_peak_bytes",        "seconds",
                                  "fault_p50_us",           "fault_p99_us",
                                  "fault_p999_us",          "frame_wait_p99_us",
                                  "unmanaged_shared_bytes", "unmanaged_private_bytes",
                                  "unmanaged_data_bytes",   "busiest_thread_fetches",
                                  "cycles_per_us",          "near_mean_bytes",
                                  "heap_mean_bytes"};

}  // namespace

RunReport RunReport::read(const std::string& path) {
  RunReport report;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) report.add_line(line);
  return report;
}

void RunReport::add_line(std::string_view line) {
  json process = json::parse(line, nullptr, false);
  if (!process.is_object()) return;
  std::string event = text(process, "event");
  if (!event.empty()) return add_event(event, process);
  begun_.erase(count(process, "pid"));
  processes_.push_back(std::move(process));
}

void RunReport::add_event(const std::string& event, const json& line) {
  if (event == "begin") begun_[count(line, "pid")] = text(line, "program");
  if (event == "exec") begun_.erase(count(line, "pid"));
  if (event == "failure")
    failures_.push_back(
        {{"pid", count(line, "pid")}, {"program", text(line, "program")}, {"reason", text(line, "reason")}});
  if (event == "native") natives_[{text(line, "program"), text(line, "reason")}]++;
}

void RunReport::forget_running_processes() {
  std::erase_if(begun_,
                [](const auto& process) { return kill(static_cast<pid_t>(process.first), 0) == 0 || errno == EPERM; });
}

void RunReport::add_last_seen(json process) {
  uint64_t pid = count(process, "pid");
  if (has_process(static_cast<pid_t>(pid))) return;
  process["ended_without_report"] = true;
  processes_.push_back(std::move(process));
}

bool RunReport::has_process(pid_t pid) const {
  return std::ranges::any_of(processes_,
                             [&](const json& process) { return count(process, "pid") == static_cast<uint64_t>(pid); });
}

size_t RunReport::lost(pid_t program) const {
  return static_cast<size_t>(std::ranges::count_if(begun_, [&](const auto& process) {
    auto pid = static_cast<pid_t>(process.first);
    return pid != program && !has_process(pid);
  }));
}

std::string RunReport::natives() const {
  std::string list;
  for (const auto& [program, times] : natives_) {
    list += fmt::format("{}{} ({}{})", list.empty() ? "" : ", ", program.first, program.second,
                        times > 1 ? fmt::format(", {} times", times) : "");
  }
  return list;
}

std::vector<std::string> RunReport::failures() const {
  std::set<std::string> reasons;
  for (const json& failure : failures_) reasons.insert(text(failure, "reason"));
  return {reasons.begin(), reasons.end()};
}

// null where the program exited with its far memory.
json RunReport::reason(int wait_status) const {
  if (!failures_.empty()) return "far memory was lost: " + failures().front();
  std::string end = describe_end(wait_status);
  return end.empty() ? json() : json(end);
}

json RunReport::totals() const {
  json totals;
  auto add = [&](const char* name, const json& process) { totals[name] = count(totals, name) + count(process, name); };
  for (const char* name : kPeaks) totals[name] = uint64_t{0};
  for (const json& process : processes_) {
    for (const pager::NamedCounter& n : pager::kNamedCounters) add(n.name, process);
    for (const char* name : kSums) add(name, process);
    for (const char* name : kPeaks) {
      if (number(process, name) > number(totals, name)) totals[name] = process[name];
    }
  }
  return totals;
}

const json& RunReport::main_process() const {
  return *std::max_element(processes_.begin(), processes_.end(), [](const json& a, const json& b) {
    auto size = [](const json& process) {
      return std::pair(number(process, "heap_peak_bytes"), number(process, "seconds"));
    };
    return size(a) < size(b);  // a child of a fork begins with its parent's heap
  });
}

json RunReport::to_json(const std::vector<std::string>& program, int wait_status) const {
  json result;
  result["program"] = program;
  result["exit_status"] = WIFEXITED(wait_status) ? json(WEXITSTATUS(wait_status)) : json();
  result["signal"] = WIFSIGNALED(wait_status) ? json(WTERMSIG(wait_status)) : json();
  result["reason"] = reason(wait_status);
  result["processes"] = processes_;
  result["totals"] = totals();
  result["ended_without_report"] = begun_.size();
  result["failures"] = failures_;
  result["native"] = json::array();
  for (const auto& [native, times] : natives_)
    result["native"].push_back({{"program", native.first}, {"reason", native.second}, {"times", times}});
  return result;
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "";
  int signal = WTERMSIG(wait_status);
  return fmt::format("the program was ended by signal {} ({})", signal, strsignal(signal));
}

}  // namespace farside::cli
