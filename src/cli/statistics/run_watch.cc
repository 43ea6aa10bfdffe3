#include "cli/statistics/run_watch.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "cli/statistics/report_values.h"

namespace farside::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr unsigned kMaxAttempts = 10;  // to find the control page of a process that has begun

// Short at first, so that figures are there at once. Looks take at most a fiftieth of a processor.
milliseconds time_before_look(unsigned number, milliseconds last_look) {
  constexpr milliseconds kFirst{50}, kUsual{200}, kLongest{2000};
  return std::clamp(50 * last_look, std::min(kFirst * (number + 1), kUsual), kLongest);
}

// Processor time of this thread: where the processors are busy, a look lasts longer.
milliseconds used_time() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return milliseconds(used.tv_sec * 1000 + used.tv_nsec / 1000000);
}

}  // namespace

RunWatch::~RunWatch() { end_thread(); }

void RunWatch::start(std::function<void()> on_look) {
  on_look_ = std::move(on_look);
  thread_ = std::thread([this] { run(); });
}

void RunWatch::stop() {
  end_thread();
  look();
}

void RunWatch::end_thread() {
  {
    LockGuard hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunWatch::run() {
  auto last_look = milliseconds(0);
  while (!is_stopped_within(time_before_look(looks_, last_look))) {
    milliseconds before = used_time();
    look();
    on_look_();
    last_look = used_time() - before;
  }
}

bool RunWatch::is_stopped_within(milliseconds time) {
  auto end = std::chrono::steady_clock::now() + time;
  LockGuard hold(mutex_);
  while (!stopping_ && changed_.wait_until(mutex_, end) == std::cv_status::no_timeout) {}
  return stopping_;
}

void RunWatch::look() {
  find_unannounced();
  LockGuard hold(mutex_);
  note_limit();
  read_reports();
  for (auto& [pid, process] : watched_) ask(pid, &process);
  forget_ended();
}

// ctl sets it first, then that of each process that exists: these are not set again.
void RunWatch::note_limit() {
  if (run_limit_.number() == limit_) return;
  limit_ = run_limit_.number();
  for (auto& [pid, process] : watched_) process.limit = process.control ? limit_ : 0;
}

void RunWatch::forget_ended() {
  for (auto at = watched_.begin(); at != watched_.end();) {
    const auto& [pid, process] = *at;
    bool has_ended = process.control && process.control->has_ended();
    if (has_ended && running_.contains(pid)) gone_.insert(running_.extract(pid));
    at = has_ended ? watched_.erase(at) : std::next(at);
  }
}

// In handler mode a process does not announce itself. All processes of the machine are searched, so ever more rarely.
void RunWatch::find_unannounced() {
  constexpr unsigned kLongest = 64;
  looks_++;
  if (!std::has_single_bit(looks_) && looks_ % kLongest != 0) return;
  auto found = ControlledProcess::find_all(getpid());
  LockGuard hold(mutex_);
  for (auto& process : found) {
    Watched& watched = watched_[static_cast<uint64_t>(process->pid())];
    if (!watched.control) watched.control = std::move(process);
  }
}

void RunWatch::read_reports() {
  if (!reports_) return;
  clearerr(reports_.get());
  char* line = nullptr;
  size_t room = 0;
  while (getline(&line, &room, reports_.get()) > 0) read_line(line);
  free(line);
}

void RunWatch::read_line(const std::string& line) {
  json process = json::parse(line, nullptr, false);
  if (!process.is_object()) return;
  std::string event = text(process, "event");
  if (!event.empty() && event != "begin" && event != "exec") return;
  uint64_t pid = count(process, "pid");
  watched_.erase(pid);
  running_.erase(pid);
  gone_.erase(pid);
  if (event == "begin") watched_[pid] = {};
  if (event.empty()) ended_.push_back(std::move(process));
}

// A child of a fork has its parent's page at first.
void RunWatch::ask(uint64_t pid, Watched* process) {
  if (!process->control && process->attempts++ < kMaxAttempts)
    process->control = ControlledProcess::find(static_cast<pid_t>(pid));
  if (!process->control) return;
  auto report = process->control->latest();
  bool is_of_parent = report && count(*report, "pid") != pid;
  if (is_of_parent) return process->control.reset();
  if (report) running_[pid] = std::move(*report);
  if (process->limit != limit_ && process->control->set_local_later(run_limit_.value())) process->limit = limit_;
  process->control->request();
}

RunWatch::Reports RunWatch::running() const {
  LockGuard hold(mutex_);
  return running_;
}

std::vector<json> RunWatch::ended() const {
  LockGuard hold(mutex_);
  return ended_;
}

std::vector<json> RunWatch::gone() const {
  std::vector<json> reports;
  LockGuard hold(mutex_);
  reports.reserve(gone_.size());
  for (const auto& [pid, report] : gone_) reports.push_back(report);
  return reports;
}

}  // namespace farside::cli
