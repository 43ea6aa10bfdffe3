#include "cli/run_metrics.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "cli/process_metrics.h"
#include "cli/report_values.h"
#include "cli/run_report.h"
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

std::chrono::milliseconds time_before_look(unsigned number) {
  constexpr std::chrono::milliseconds kFirst{250}, kLongest{5000};
  return std::min(kFirst * (1 << std::min(number, 10u)), kLongest);
}

void append_run_metrics(const json& totals, const std::map<uint64_t, json>& running, const int* wait_status,
                        Exposition* out) {
  uint64_t heap = 0, near = 0, allowed = 0;
  for (const auto& [pid, process] : running) {
    heap += count(process, "heap_bytes");
    near += count(process, "near_bytes");
    allowed += count(process, "local_bytes");
  }
  out->gauge("farside_run_processes", "Processes that run with far memory.", running.size());
  out->gauge("farside_run_heap_bytes", "Memory that Farside manages, of all processes.", heap);
  out->gauge("farside_run_near_bytes", "Managed memory in local RAM.", near);
  out->gauge("farside_run_far_bytes", "Managed memory that is far.", heap > near ? heap - near : 0);
  out->gauge("farside_run_local_bytes", "Near memory that is allowed.", allowed);
  for (const char* peak : {"near_peak_bytes", "far_peak_bytes", "heap_peak_bytes"})
    out->gauge(fmt::format("farside_run_{}", peak), "Largest value of a process so far.", count(totals, peak));
  append_counters(totals, out);
  append_fault_durations(totals, out);
  out->gauge("farside_run_ended", "1 if the program has ended.", wait_status ? 1 : 0);
  if (!wait_status) return;
  int status = WIFSIGNALED(*wait_status) ? 128 + WTERMSIG(*wait_status) : WEXITSTATUS(*wait_status);
  out->gauge("farside_run_exit_status", "Exit status of the program; 128 + n if signal n ended it.", status);
}

Result<std::unique_ptr<RunMetrics>> RunMetrics::start(const Outputs& outputs, const std::string& program,
                                                      const std::string& report_file,
                                                      std::function<void(Exposition*)> append) {
  std::unique_ptr<RunMetrics> metrics(new RunMetrics(outputs, program, report_file, std::move(append)));
  Status published = metrics->publish(nullptr);
  if (!published.ok()) return published;
  if (!outputs.address.empty()) {
    auto endpoint =
        MetricsEndpoint::start(outputs.address, {[m = metrics.get()] { return m->text(); }, [] { return Status(); }});
    if (!endpoint.ok()) return endpoint.status();
    metrics->endpoint_ = std::move(*endpoint);
  }
  metrics->thread_ = std::thread([m = metrics.get()] { m->run(); });
  return metrics;
}

RunMetrics::RunMetrics(Outputs outputs, std::string program, const std::string& report_file,
                       std::function<void(Exposition*)> append)
    : outputs_(std::move(outputs)), program_(std::move(program)), append_(std::move(append)), reports_(report_file) {}

RunMetrics::~RunMetrics() { stop(); }

void RunMetrics::stop() {
  {
    LockGuard hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunMetrics::run() {
  for (unsigned looks = 0; !is_stopped_within(time_before_look(looks)); looks++) {
    ask_processes();
    read_reports();
    Status published = publish(nullptr);
    if (!published.ok()) log(LogLevel::kWarning, "{}", published.text());
  }
}

bool RunMetrics::is_stopped_within(std::chrono::milliseconds time) {
  auto end = std::chrono::steady_clock::now() + time;
  LockGuard hold(mutex_);
  while (!stopping_ && changed_.wait_until(mutex_, end) == std::cv_status::no_timeout) {}
  return stopping_;
}

void RunMetrics::finish(int wait_status) {
  stop();
  for (auto& [pid, process] : running_) gone_.push_back(std::move(process));
  running_.clear();
  read_reports();
  Status published = publish(&wait_status);
  if (!published.ok()) log(LogLevel::kError, "{}", published.text());
}

// Asks all processes below this one that have far memory. One that does not answer keeps its last answer.
void RunMetrics::ask_processes() {
  std::map<uint64_t, json> before = std::move(running_);
  running_.clear();
  for (const auto& process : ControlledProcess::find_all(getpid())) {
    auto pid = static_cast<uint64_t>(process->pid());
    auto answer = process->ask({});
    if (answer.ok()) running_[pid] = std::move(*answer);
    else if (before.contains(pid)) running_[pid] = before[pid];
    before.erase(pid);
  }
  for (auto& [pid, process] : before) gone_.push_back(std::move(process));
}

// Adds what processes have reported at their end. One that was there and has not reported was ended by a signal: its
// last answer counts.
void RunMetrics::read_reports() {
  std::vector<json> ended;
  if (!ended_.is_null()) ended.push_back(ended_);
  reports_.clear();
  for (std::string line; std::getline(reports_, line);) {
    json process = json::parse(line, nullptr, false);
    if (!process.is_object() || process.contains("event")) continue;
    std::erase_if(gone_, [&](const json& gone) { return count(gone, "pid") == count(process, "pid"); });
    ended.push_back(std::move(process));
  }
  std::move(gone_.begin(), gone_.end(), std::back_inserter(ended));
  gone_.clear();
  ended_ = totals_of(ended);
}

Status RunMetrics::publish(const int* wait_status) {
  std::vector<json> all = {ended_.is_null() ? json::object() : ended_};
  for (const auto& [pid, process] : running_) all.push_back(process);
  Exposition out({{"program", program_}, {"launcher", std::to_string(getpid())}});
  append_build_info(&out);
  append_run_metrics(totals_of(all), running_, wait_status, &out);
  append_(&out);
  std::string text = out.take();
  Status written = outputs_.file.empty() ? Status() : replace_file(outputs_.file, text);
  LockGuard hold(mutex_);
  text_ = std::move(text);
  return written;
}

std::string RunMetrics::text() {
  Exposition process;
  append_process_metrics(&process);
  LockGuard hold(mutex_);
  return text_ + process.take();
}

}  // namespace farside::cli
