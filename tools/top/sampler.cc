#include "tools/top/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "cli/statistics/report_values.h"
#include "cli/statistics/run_advice.h"
#include "pager/shared/stats.h"
#include "report/machine.h"

namespace farside::top {
namespace {

using cli::count;
using cli::number;
using cli::text;
using nlohmann::json;

constexpr double kPressureSeconds = 10;

pid_t parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string word; file >> word;) {
    if (word != "PPid:") continue;
    pid_t parent = 0;
    file >> parent;
    return parent;
  }
  return 0;
}

// The nearest ancestor that is a launcher.
uint64_t launcher_of(pid_t pid) {
  for (pid_t at = parent_of(pid); at > 1; at = parent_of(at)) {
    if (read_line(fmt::format("/proc/{}/comm", at)) == "farside") return static_cast<uint64_t>(at);
  }
  return 0;
}

double per_second(const json& gained, std::initializer_list<const char*> names) {
  double sum = 0, seconds = number(gained, "seconds");
  for (const char* name : names) sum += number(gained, name);
  return seconds > 0 ? sum / seconds : 0;
}

}  // namespace

json difference(const json& now, const json& before) {
  json gained = now;
  auto subtract = [&](const char* name) { gained[name] = std::max(0.0, number(now, name) - number(before, name)); };
  for (const pager::NamedCounter& counter : pager::kNamedCounters) subtract(counter.name);
  for (const char* name : {"seconds", "busiest_thread_fetches", "signal_us", "return_us"}) subtract(name);
  return gained;
}

Row row_of(const std::deque<json>& reports) {
  const json& now = reports.back();
  const json& last = reports.size() > 1 ? reports[reports.size() - 2] : now;
  json recent = difference(now, last), longer = difference(now, reports.front());
  auto advice = cli::advise(longer, HugePages::kAuto);
  uint64_t heap = count(now, "heap_bytes"), near = std::min(heap, count(now, "near_bytes"));
  return {.pid = count(now, "pid"),
          .program = text(now, "program"),
          .transport = text(now, "transport"),
          .advice = advice.empty() ? "" : advice.front().text,
          .near = near,
          .far = heap - near,
          .budget = count(now, "local_bytes"),
          .faults = per_second(recent, {"faults"}),
          .bytes = per_second(recent, {"bytes_fetched", "bytes_written"}),
          .pressure = cli::loss_of(longer).share()};
}

void Sampler::look() {
  for (auto& found : ControlledProcess::find_all(0)) {
    Process& process = processes_[found->pid()];
    if (process.control) continue;
    process.run = launcher_of(found->pid());
    process.control = std::move(found);
  }
  std::erase_if(processes_, [](const auto& entry) { return entry.second.control->has_ended(); });
  for (auto& [pid, process] : processes_) read(static_cast<uint64_t>(pid), &process);
}

void Sampler::read(uint64_t pid, Process* process) {
  std::deque<json>& reports = process->reports;
  auto report = process->control->latest();
  bool is_new = report && count(*report, "pid") == pid && (reports.empty() || reports.back() != *report);
  process->silent_looks = is_new ? 0 : process->silent_looks + 1;
  if (is_new) reports.push_back(std::move(*report));
  auto is_old = [&](const json& one) {
    return number(reports.back(), "seconds") - number(one, "seconds") > kPressureSeconds;
  };
  while (reports.size() > 2 && is_old(reports[1])) reports.pop_front();
  process->control->request();
}

std::vector<Row> Sampler::rows() const {
  constexpr unsigned kSilent = 3;
  std::vector<Row> rows;
  for (const auto& [pid, process] : processes_) {
    if (process.reports.empty()) continue;
    rows.push_back(row_of(process.reports));
    rows.back().run = process.run;
    rows.back().replies = process.silent_looks < kSilent;
  }
  return rows;
}

}  // namespace farside::top
