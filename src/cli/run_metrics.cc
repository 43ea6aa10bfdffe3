#include "cli/run_metrics.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "cli/process_metrics.h"
#include "cli/statistics/report_values.h"
#include "cli/statistics/run_report.h"
#include "launch/control_client.h"
#include "pager/shared/stats.h"
#include "report/files.h"

namespace farside::cli {
namespace {

using nlohmann::json;

// "bytes_fetched" -> "farside_run_fetched_bytes_total", "fault_us" -> "farside_run_fault_seconds_total".
std::string metric_name(const pager::NamedCounter& counter) {
  std::string_view name = counter.name;
  constexpr std::string_view kBytes = "bytes_", kTime = "_us";
  if (name.starts_with(kBytes)) return fmt::format("farside_run_{}_bytes_total", name.substr(kBytes.size()));
  if (counter.unit == pager::Unit::kEvents) return fmt::format("farside_run_{}_total", name);
  return fmt::format("farside_run_{}_seconds_total", name.substr(0, name.size() - kTime.size()));
}

void append_counters(const json& totals, Exposition* out) {
  for (const pager::NamedCounter& counter : pager::kNamedCounters) {
    double value = number(totals, counter.name);
    bool is_time = counter.unit != pager::Unit::kEvents;
    out->counter(metric_name(counter), fmt::format("Sum of the counter {} of the run's processes.", counter.name),
                 is_time ? value / 1e6 : value);
  }
}

void append_copies(const json& totals, const std::map<uint64_t, json>& running, Exposition* out) {
  uint64_t degraded = 0;
  double left = 0;
  for (const auto& [pid, process] : running) {
    degraded += count(process, "degraded_slabs");
    left = std::max(left, number(process, "repair_seconds_left"));
  }
  out->gauge("farside_run_degraded_slabs", "Slabs of 16 MiB with fewer copies than --replicas on servers that stay.",
             degraded);
  out->gauge("farside_run_repair_left_seconds", "Expected time until their copies are complete; 0: not known, or none.",
             left);
  out->counter("farside_run_repaired_slabs_total",
               "Copies of slabs that were made, in place of lost ones and of those on servers that drain.",
               count(totals, "repaired_slabs"));
}

void append_fault_durations(const json& totals, Exposition* out) {
  auto seconds = [&](const char* name) { return number(totals, name) / 1e6; };
  out->summary(
      "farside_run_fault_duration_seconds",
      "Time of a page fault within Farside; quantiles of the process where they are largest.",
      {{"0.5", seconds("fault_p50_us")}, {"0.99", seconds("fault_p99_us")}, {"0.999", seconds("fault_p999_us")}},
      seconds("fault_us"), count(totals, "faults"));
}

json totals_of(const std::vector<json>& processes) {
  RunReport report;
  for (const json& process : processes) report.add_line(process.dump());
  return report.totals();
}

}  // namespace

std::chrono::milliseconds time_before_write(unsigned number) {
  constexpr std::chrono::milliseconds kFirst{250}, kLongest{5000};
  return std::min(kFirst * (1 << std::min(number, 10u)), kLongest);
}

void append_run_metrics(const json& totals, const std::map<uint64_t, json>& running, const int* wait_status,
                        Exposition* out) {
  uint64_t heap = 0, near = 0, allowed = 0, budget = 0, saved = 0;
  for (const auto& [pid, process] : running) {
    uint64_t own = count(process, "heap_bytes"), used = count(process, "near_bytes"),
             tables = count(process, "metadata_bytes"), limit = count(process, "local_bytes");
    heap += own;
    near += used;
    allowed += limit;
    budget += std::min(limit, own + tables);
    saved += own > used + tables && count(process, "evictions") > 0 ? own - used - tables : 0;
  }
  out->gauge("farside_run_processes", "Processes that run with far memory.", running.size());
  out->gauge("farside_run_heap_bytes", "Memory that Farside manages, of all processes.", heap);
  out->gauge("farside_run_near_bytes", "Managed memory in local RAM.", near);
  out->gauge("farside_run_far_bytes", "Managed memory that is far.", heap > near ? heap - near : 0);
  out->gauge("farside_run_local_bytes", "Near memory that is allowed.", allowed);
  out->gauge("farside_run_budget_bytes", "The same, of each process at most what it can use: heap and tables.", budget);
  out->gauge("farside_run_saved_bytes", "Near memory that is saved now: far memory, less Farside's tables.", saved);
  for (const char* peak : {"near_peak_bytes", "far_peak_bytes", "heap_peak_bytes"})
    out->gauge(fmt::format("farside_run_{}", peak), "Largest value of a process so far.", count(totals, peak));
  append_copies(totals, running, out);
  append_counters(totals, out);
  append_fault_durations(totals, out);
  out->gauge("farside_run_ended", "1 if the program has ended.", wait_status ? 1 : 0);
  if (!wait_status) return;
  int status = WIFSIGNALED(*wait_status) ? 128 + WTERMSIG(*wait_status) : WEXITSTATUS(*wait_status);
  out->gauge("farside_run_exit_status", "Exit status of the program; 128 + n if signal n ended it.", status);
}

void append_pressure(const Pressure& pressure, Exposition* out) {
  for (double seconds : Pressure::kWindows) {
    out->gauge(
        fmt::format("farside_run_pressure_{:.0f}s", seconds),
        fmt::format("Part of the last {:.0f} s that was lost to far memory, of the process that lost most.", seconds),
        pressure.over(seconds));
  }
}

Result<std::unique_ptr<RunMetrics>> RunMetrics::start(const Outputs& outputs, const std::string& program,
                                                      const RunWatch& watch, std::function<void(Exposition*)> append) {
  std::unique_ptr<RunMetrics> metrics(new RunMetrics(outputs, program, watch, std::move(append)));
  Status written = metrics->write_file(nullptr);
  if (!written.ok()) return written;
  if (outputs.address.empty()) return metrics;
  auto append_process = [m = metrics.get()] {
    Exposition process;
    append_process_metrics(&process);
    return m->text(nullptr) + process.take();
  };
  auto endpoint = MetricsEndpoint::start(outputs.address, {append_process, [] { return Status(); }});
  if (!endpoint.ok()) return endpoint.status();
  metrics->endpoint_ = std::move(*endpoint);
  return metrics;
}

void RunMetrics::refresh_file() {
  {
    LockGuard hold(mutex_);
    pressure_.add(watch_.running());
  }
  if (std::chrono::steady_clock::now() - written_ < time_before_write(writes_)) return;
  Status written = write_file(nullptr);
  if (!written.ok()) log(LogLevel::kWarning, "{}", written.text());
}

void RunMetrics::finish(int wait_status) {
  Status written = write_file(&wait_status);
  if (!written.ok()) log(LogLevel::kError, "{}", written.text());
}

Status RunMetrics::write_file(const int* wait_status) {
  if (written_ != std::chrono::steady_clock::time_point()) writes_++;
  written_ = std::chrono::steady_clock::now();
  return outputs_.file.empty() ? Status() : replace_file(outputs_.file, text(wait_status));
}

std::string RunMetrics::text(const int* wait_status) const {
  RunWatch::Reports running = watch_.running();
  std::vector<json> all = watch_.ended(), gone = watch_.gone();
  std::move(gone.begin(), gone.end(), std::back_inserter(all));
  for (const auto& [pid, process] : running) all.push_back(process);
  Exposition out({{"program", program_}, {"launcher", std::to_string(getpid())}});
  append_build_info(&out);
  append_run_metrics(totals_of(all), running, wait_status, &out);
  {
    LockGuard hold(mutex_);
    pressure_.add(running);
    append_pressure(pressure_, &out);
  }
  append_(&out);
  return out.take();
}

}  // namespace farside::cli
