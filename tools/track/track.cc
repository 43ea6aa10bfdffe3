// farside track: which bytes, lines, pages and blocks of a program's memory change, per time window.
#include "tools/track/track.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/tools.h"
#include "command/describe.h"
#include "launch/child.h"
#include "launch/program_check.h"
#include "process/write_protection.h"
#include "report/files.h"
#include "report/machine.h"
#include "tools/track/report.h"

namespace farside::track {
namespace {

constexpr const char* kHelp =
    "A line of 64 B, a page or an aligned block of 2 MiB is dirty if at least one of its bytes differs from its value "
    "at\n"
    "the start of the window. Children are not tracked. A table is printed to standard error; --out DIR also writes\n"
    "track.json, track.csv and track.svg. An interrupt ends the tracking of a process given by -p, which continues. A\n"
    "program after -- is tracked to its end, and its exit status is returned. See docs/guide/track.md.\n\n"
    "Examples:\n"
    "  farside track -- ./job data.csv\n"
    "  farside track -p 4711 --window 0.1 --for 30 --out job-writes\n"
    "  farside track --quiet --out sort-writes -- sort big.txt";

constexpr size_t kRowsPerHead = 20;

struct TrackArguments {
  pid_t pid = 0;
  double window_seconds = 1;
  double max_seconds = 0;  // 0: until the process ends
  std::string out, method, memory;
  bool quiet = false;
};

double cpu_seconds() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Result<uint64_t> room_for_snapshot(const std::string& given) {
  if (given.empty()) return machine_memory().available / 2;
  auto bytes = parse_size(given);
  if (bytes.ok() || given == "0") return bytes;
  return Status::error(EINVAL, "--memory {}: not a size such as 2G", given);
}

Status write_results(const Report& report, const std::string& directory) {
  if (directory.empty()) return {};
  std::string json = to_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  return write_files(directory,
                     {{"track.json", json + "\n"}, {"track.csv", to_csv(report)}, {"track.svg", to_svg(report)}});
}

// Tracks one process until it ends, the time is over or a signal requests the end.
class Session {
 public:
  Session(const TrackArguments& arguments, std::unique_ptr<Tracee> tracee, bool started, const SignalHold& hold,
          uint64_t snapshot_bytes)
      : arguments_(arguments),
        hold_(hold),
        tracee_(std::move(tracee)),
        started_(started),
        tracker_(*tracee_, snapshot_bytes) {
    report_.pid = tracee_->pid();
    report_.window_seconds = arguments.window_seconds;
  }

  Status run() {
    start_ns_ = now_ns();
    Status begun = begin();
    if (!begun.ok()) return begun;
    while (!over_) {
      wait_for_window();
      Status looked = look();
      if (!looked.ok()) return looked;
      if (tracee_->poll() == Tracee::Event::kNewProgram) begun = begin();
      if (!begun.ok()) return begun;
    }
    return {};
  }

  // Detaches from the process. Returns the wait status of a program that was started.
  int finish() {
    report_.overhead.elapsed_seconds = static_cast<double>(now_ns() - start_ns_) / 1e9;
    report_.overhead.stopped_seconds = static_cast<double>(tracee_->stopped_ns()) / 1e9;
    report_.overhead.stops = tracee_->stops();
    report_.overhead.snapshot_bytes = tracker_.snapshot_bytes();
    for (const Window& window : report_.windows) report_.overhead.write_faults += window.write_faults;
    report_.overhead.tracker_cpu_seconds = cpu_seconds();
    int status = started_ ? tracee_->wait_for_end() : 0;
    tracee_.reset();
    if (report_.method == WriteTracker::name_of(WriteTracker::Method::kWriteProtect)) {
      report_.overhead.write_fault_ns = process::write_fault_ns();
    }
    return status;
  }

  Report& report() { return report_; }

 private:
  Status begin() {
    WriteTracker::Method wanted = WriteTracker::Method::kWriteProtect;
    while (!arguments_.method.empty() && WriteTracker::name_of(wanted) != arguments_.method) {
      wanted = static_cast<WriteTracker::Method>(static_cast<int>(wanted) + 1);
    }
    uint64_t window_end = now_ns() + static_cast<uint64_t>(arguments_.window_seconds * 1e9);
    Status begun = tracker_.begin(arguments_.method.empty() ? nullptr : &wanted, !started_);
    tracee_->resume();
    if (!begun.ok()) return begun;
    report_.method = WriteTracker::name_of(tracker_.method());
    report_.why_not = tracker_.why_not();
    next_ns_ = std::max(window_end, now_ns());
    return {};
  }

  // Waits for the end of the window, or returns early if the process ends.
  void wait_for_window() {
    while (!over_) {
      auto event = tracee_->poll();
      if (event == Tracee::Event::kEnding || event == Tracee::Event::kEnded) over_ = true;
      uint64_t now = now_ns();
      if (event != Tracee::Event::kNone || now >= next_ns_) break;
      uint64_t left = next_ns_ - now;
      timespec time = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
      siginfo_t info;
      int signal = sigtimedwait(&hold_.held(), &info, &time);
      if (signal > 0 && signal != SIGCHLD) take_signal(signal, info);
    }
    auto period = static_cast<uint64_t>(arguments_.window_seconds * 1e9);
    next_ns_ = std::max(next_ns_ + period, now_ns() + period / 2);
    bool time_over =
        arguments_.max_seconds > 0 && static_cast<double>(now_ns() - start_ns_) >= arguments_.max_seconds * 1e9;
    if (time_over) over_ = true;
  }

  // Signals are passed on to a program that was started; otherwise they end the tracking.
  void take_signal(int signal, const siginfo_t& info) {
    if (!started_) over_ = signal != SIGUSR1 && signal != SIGUSR2;
    else if (info.si_code <= 0) kill(tracee_->pid(), signal);
  }

  Status look() {
    if (tracee_->poll() == Tracee::Event::kEnded || tracee_->poll() == Tracee::Event::kNewProgram) return {};
    auto window = tracker_.look();
    if (!window.ok()) return tracee_->poll() == Tracee::Event::kEnded ? Status{} : window.status();
    if (!arguments_.quiet) {
      if (report_.windows.size() % kRowsPerHead == 0) fputs(table_head().c_str(), stderr);
      fputs(table_row(*window).c_str(), stderr);
    }
    report_.windows.push_back(std::move(*window));
    return {};
  }

  const TrackArguments& arguments_;
  const SignalHold& hold_;
  std::unique_ptr<Tracee> tracee_;
  bool started_;
  Tracker tracker_;
  Report report_;
  bool over_ = false;
  uint64_t start_ns_ = 0, next_ns_ = 0;
};

Status check_arguments(const TrackArguments& arguments, const std::vector<std::string>& program) {
  if (arguments.pid < 0) return Status::error(EINVAL, "-p {}: not a PID", arguments.pid);
  if (arguments.pid != 0 && !program.empty()) {
    return Status::error(EINVAL, "give a process (-p {}) or a program after --, not both", arguments.pid);
  }
  if (arguments.pid == 0 && program.empty()) {
    return Status::error(EINVAL, "nothing to track; as in: farside track -p PID, or farside track -- sort big.txt");
  }
  return {};
}

Result<std::unique_ptr<Tracee>> begin_tracee(const TrackArguments& arguments, const std::vector<std::string>& program,
                                             const SignalHold& hold, int* exit_status) {
  *exit_status = kExitFailure;
  if (program.empty()) return Tracee::attach(arguments.pid);
  const char* search_path = getenv("PATH");
  auto path = find_program(program[0], search_path ? search_path : "");
  auto tracee = path.ok() ? Tracee::start(*path, program, hold) : path.status();
  if (!tracee.ok()) *exit_status = exit_status_of(tracee.status());
  return tracee;
}

// The exit status; or, with *end_like set, *wait_status is the program's.
int track_program(const TrackArguments& arguments, const std::vector<std::string>& program, int* wait_status,
                  bool* end_like) {
  Status possible = check_arguments(arguments, program);
  if (!possible.ok()) return fail(possible, kExitUsage);
  auto room = room_for_snapshot(arguments.memory);
  if (!room.ok()) return fail(room.status(), kExitUsage);
  Status made = arguments.out.empty() ? Status() : make_directory(arguments.out);
  if (!made.ok()) return fail(made);
  SignalHold hold;
  int exit_status = 0;
  auto tracee = begin_tracee(arguments, program, hold, &exit_status);
  if (!tracee.ok()) return fail(tracee.status(), exit_status);
  Session session(arguments, std::move(*tracee), !program.empty(), hold, *room);
  session.report().program = program;
  Status ran = session.run();
  *wait_status = session.finish();
  if (!ran.ok()) return fail(ran);
  if (!arguments.quiet) fputs(summary(session.report()).c_str(), stderr);
  Status written = write_results(session.report(), arguments.out);
  if (!written.ok()) return fail(written);
  *end_like = !program.empty();
  return 0;
}

}  // namespace

int run_track(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<std::string> program = take_program(&words);
  Command command("farside track", cli::tool_help("track"));
  command.expect_program();
  auto arguments = std::make_shared<TrackArguments>();
  command.add_option("-p,--pid", &arguments->pid, "a process that runs already").value("PID");
  command.add_option("--window", &arguments->window_seconds, "seconds that a window lasts")
      .value("S")
      .range(0.01, 3600.0)
      .show_default();
  command.add_option("--for", &arguments->max_seconds, "stop tracking after so many seconds").value("S").positive();
  command.add_option("--out", &arguments->out, "directory for track.json, track.csv and track.svg").value("DIR");
  command
      .add_option("--memory", &arguments->memory,
                  "room for copies of the program's pages (default: half of the memory that is available)")
      .value("SIZE");
  command.add_option("--method", &arguments->method, "how writes are tracked (default: the first of these that works)")
      .one_of({"write-protect", "soft-dirty", "compare"});
  command.add_flag("--quiet", &arguments->quiet, "print nothing but errors");
  command.set_footer(kHelp);
  command.set_action([arguments, program = std::move(program)] {
    int wait_status = 0;
    bool end_like = false;
    int status = track_program(*arguments, program, &wait_status, &end_like);
    return end_like ? end_like_child(wait_status) : status;
  });
  return run_tool(command, std::move(words));
}

}  // namespace farside::track
