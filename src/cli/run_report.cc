#include "cli/run_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <set>

#include "base/bits.h"
#include "base/size.h"
#include "cli/report_values.h"
#include "pager/shared/stats.h"

namespace farside::cli {
namespace {
using nlohmann::json;

// Values in addition to the pager's counters: those summed over processes, and those of which the largest is kept.
constexpr const char* kSums[] = {"signal_us", "return_us", "lookup_us", "forks", "refused_reservations"};
constexpr const char* kPeaks[] = {"near_peak_bytes",        "far_peak_bytes",
                                  "heap_peak_bytes",        "seconds",
                                  "fault_p50_us",           "fault_p99_us",
                                  "fault_p999_us",          "frame_wait_p99_us",
                                  "unmanaged_shared_bytes", "unmanaged_private_bytes",
                                  "unmanaged_data_bytes",   "busiest_thread_fetches",
                                  "cycles_per_us"};

std::string bytes(const json& from, const char* name) { return format_size(count(from, name)); }

std::string share(uint64_t part, uint64_t whole) {
  return whole == 0 ? "none" : fmt::format("{:.0f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string mode_line(const json& process, const json& totals, size_t processes) {
  std::string reason = text(process, "mode_reason");
  std::string line = fmt::format("farside: {}: {} mode", text(process, "program"), text(process, "mode"));
  if (!reason.empty()) line += fmt::format(" ({})", reason);
  line += fmt::format(", {}, {:.1f} s", text(process, "transport"), number(totals, "seconds"));
  if (processes > 1) line += fmt::format("; figures are sums over {} processes, peaks those of the largest", processes);
  return line + "\n";
}

std::string memory_line(const json& process, const json& totals) {
  bool lowered = count(process, "near_peak_bytes") > count(process, "local_bytes");  // by farside ctl
  return fmt::format("farside: near {} at most of {} allowed{}, far {} at most; heap {} at most\n",
                     bytes(totals, "near_peak_bytes"), bytes(process, "local_bytes"), lowered ? " in the end" : "",
                     bytes(totals, "far_peak_bytes"), bytes(totals, "heap_peak_bytes"));
}

// What of the program's memory can never be far, where that is much.
std::string unmanaged_line(const json& process) {
  constexpr uint64_t kMuch = 8 * kMiB;
  uint64_t shared = count(process, "unmanaged_shared_bytes"), own = count(process, "unmanaged_private_bytes"),
           data = count(process, "unmanaged_data_bytes");
  if (shared + own + data < std::max(kMuch, count(process, "heap_peak_bytes") / 10)) return "";
  return fmt::format(
      "farside: near besides, since it cannot be far: at most {} of shared memory, {} of stacks and mappings under "
      "64 KiB, {} of data of programs and libraries\n",
      format_size(shared), format_size(own), format_size(data));
}

std::string refused_line(const json& totals) {
  uint64_t refused = count(totals, "refused_reservations");
  return refused == 0 ? ""
                      : fmt::format("farside: far memory was full: {} requests for memory were refused\n", refused);
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
  if (uint64_t huge = count(totals, "huge_pages_fetched") + count(totals, "huge_pages_filled"); huge > 0) {
    lines += fmt::format("farside: huge pages: {} fetched, {} fresh, {} evicted whole, {} divided\n",
                         count(totals, "huge_pages_fetched"), count(totals, "huge_pages_filled"),
                         count(totals, "huge_pages_evicted"), count(totals, "huge_pages_broken"));
  }
  return lines + fmt::format("farside: {:.2f} s in faults, {:.2f} s of them waiting for a free frame\n",
                             number(totals, "fault_us") / 1e6, number(totals, "wait_frame_us") / 1e6);
}

std::string per(const json& totals, uint64_t events, std::initializer_list<std::pair<const char*, const char*>> parts) {
  std::string text;
  for (const auto& [name, member] : parts) {
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name,
                        number(totals, member) / static_cast<double>(std::max<uint64_t>(events, 1)));
  }
  return text;
}

// The time of a fault and of an evicted page by phase, as MAGE figures 6 and 16.
std::string breakdown_lines(const json& totals) {
  uint64_t evictions = count(totals, "evictions"), faults = count(totals, "faults");
  std::string lines = fmt::format(
      "farside: us per fault: {}; within Farside p50 {:.1f}, p99 {:.1f}; p99 of waiting for a frame {:.1f}\n",
      per(totals, faults,
          {{"signal", "signal_us"},
           {"lookup", "lookup_us"},
           {"frame", "wait_frame_us"},
           {"transport", "fetch_us"},
           {"other's page", "wait_page_us"},
           {"map", "map_us"},
           {"account", "account_us"},
           {"return", "return_us"}}),
      number(totals, "fault_p50_us"), number(totals, "fault_p99_us"), number(totals, "frame_wait_p99_us"));
  double cycles = number(totals, "evictor_cpu_us") * number(totals, "cycles_per_us");
  return lines + fmt::format("farside: us per evicted page: {}; {:.1f} pages a batch, {:.2f} cycles a byte\n",
                             per(totals, evictions,
                                 {{"select", "select_us"},
                                  {"hold", "hold_us"},
                                  {"unmap", "unmap_us"},
                                  {"write", "write_us"},
                                  {"release", "release_us"},
                                  {"processor", "evictor_cpu_us"}}),
                             static_cast<double>(evictions) / std::max(1.0, number(totals, "batches")),
                             cycles / static_cast<double>(evictions * kPageSize));
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

// The last lines of a summary, each reason once: one server is often lost for all processes.
std::string RunReport::failure_lines() const {
  std::set<std::string> reasons;
  for (const json& failure : failures_) reasons.insert(text(failure, "reason"));
  std::string lines;
  for (const std::string& reason : reasons) lines += fmt::format("farside: far memory was lost: {}\n", reason);
  return lines;
}

void RunReport::forget_running_processes() {
  std::erase_if(begun_,
                [](const auto& process) { return kill(static_cast<pid_t>(process.first), 0) == 0 || errno == EPERM; });
}

std::string RunReport::native_line() const {
  if (natives_.empty()) return "";
  std::string list;
  for (const auto& [program, times] : natives_) {
    list += fmt::format("{}{} ({}{})", list.empty() ? "" : ", ", program.first, program.second,
                        times > 1 ? fmt::format(", {} times", times) : "");
  }
  return fmt::format("farside: programs that ran natively, without far memory: {}\n", list);
}

std::string RunReport::end_line(int wait_status, pid_t program) const {
  if (!WIFSIGNALED(wait_status)) return "";
  auto is_program = [&](const json& process) { return count(process, "pid") == static_cast<uint64_t>(program); };
  int signal = WTERMSIG(wait_status);
  return fmt::format("farside: the program was ended by signal {} ({}){}\n", signal, strsignal(signal),
                     std::ranges::any_of(processes_, is_program) ? "" : "; its own counters are lost");
}

std::string RunReport::lost_line(pid_t program) const {
  size_t lost = begun_.size() - begun_.count(static_cast<uint64_t>(program));
  if (lost == 0) return "";
  return fmt::format("farside: {} process{} ended without a report, as by a signal; {} counters are not in the sums\n",
                     lost, lost == 1 ? "" : "es", lost == 1 ? "its" : "their");
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
  result["processes"] = processes_;
  result["totals"] = totals();
  result["ended_without_report"] = begun_.size();
  result["failures"] = failures_;
  result["native"] = json::array();
  for (const auto& [native, times] : natives_)
    result["native"].push_back({{"program", native.first}, {"reason", native.second}, {"times", times}});
  return result;
}

std::string RunReport::summary(int wait_status, pid_t program) const {
  std::string lines = end_line(wait_status, program) + native_line() + lost_line(program);
  if (processes_.empty()) {
    if (lines.empty()) lines = "farside: no process wrote a report: none ended by exit or from main\n";
    return lines + failure_lines();
  }
  const json& process = main_process();
  json sums = totals();
  lines += mode_line(process, sums, processes_.size()) + memory_line(process, sums) + refused_line(sums) +
           unmanaged_line(process);
  if (count(sums, "evictions") > 0) lines += traffic_lines(sums) + breakdown_lines(sums);
  else if (begun_.empty())
    lines += fmt::format("farside: nothing was evicted: the managed heap never exceeded --local ({})\n",
                         bytes(process, "local_bytes"));
  return lines + failure_lines();
}

}  // namespace farside::cli
