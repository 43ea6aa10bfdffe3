#include "launch/run_captured.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/bits.h"
#include "base/clock.h"

namespace farside {
namespace {

constexpr int kExitNotStarted = 127;
constexpr uint64_t kKept = 1 << 20;  // bytes of output, from its end
constexpr int64_t kPollNs = 100'000'000;
constexpr double kGraceSeconds = 3;  // until a program that was asked to stop is killed

// An unnamed temporary file that receives output.
class Captured {
 public:
  Captured() : file_(tmpfile()) {}
  ~Captured() {
    if (file_) fclose(file_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  bool ok() const { return file_ != nullptr; }
  int fd() const { return fileno(file_); }
  std::string text() const {
    off_t size = lseek(fd(), 0, SEEK_END);
    auto kept = static_cast<size_t>(std::min<off_t>(size, kKept));
    std::string text(kept, 0);
    ssize_t n = pread(fd(), text.data(), kept, size - static_cast<off_t>(kept));
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }

 private:
  FILE* file_;
};

// Runs in the forked child.
[[noreturn]] void execute(const std::vector<char*>& argv, int output, int errors, const SignalHold& hold,
                          pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // SIGTERM and not SIGKILL, because a launcher passes it on to its program
  if (getppid() != parent) _exit(kExitNotStarted);
  int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  close(nothing);
  pthread_sigmask(SIG_SETMASK, &hold.before(), nullptr);
  execv(argv[0], argv.data());
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], strerror(errno));
  _exit(kExitNotStarted);
}

Result<pid_t> start_in_group(const std::vector<std::string>& words, int output, int errors, const SignalHold& hold) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  fflush(nullptr);
  pid_t parent = getpid(), child = fork();
  if (child < 0) return Status::error(errno, "cannot start a process: {}", strerror(errno));
  if (child == 0) execute(argv, output, errors, hold, parent);
  setpgid(child, child);  // in both processes, so that the group exists in either when it continues
  return child;
}

bool asks_to_stop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

double seconds_since(uint64_t start_ns) { return static_cast<double>(now_ns() - start_ns) / 1e9; }

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Waits for the end of the child and fills in *run. True: a stop signal arrived.
bool wait_for_group(pid_t child, const SignalHold& hold, const CaptureOptions& options, CapturedRun* run) {
  uint64_t start = now_ns();
  bool stopping = false;
  double limit = options.seconds;
  rusage used = {};
  while (wait4(child, &run->wait_status, WNOHANG, &used) != child) {
    if (options.meanwhile) options.meanwhile(child);
    timespec look = {0, options.meanwhile ? 0 : kPollNs};
    int signal = sigtimedwait(&hold.held(), nullptr, &look);
    if (signal > 0 && signal != SIGCHLD) kill(-child, signal);
    if (asks_to_stop(signal) && !stopping) {
      stopping = true;
      limit = seconds_since(start) + kGraceSeconds;
    }
    if (limit > 0 && seconds_since(start) > limit && !run->cut_off) {
      run->cut_off = true;
      kill(-child, SIGKILL);
    }
  }
  run->seconds = seconds_since(start);
  run->cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  run->peak_bytes = static_cast<uint64_t>(used.ru_maxrss) * kKiB;
  kill(-child, SIGKILL);  // processes that it left behind
  return stopping;
}

std::string last_line(const std::string& text) {
  size_t end = text.find_last_not_of("\n ");
  if (end == text.npos) return "";
  size_t before = text.rfind('\n', end);
  size_t begin = before == text.npos ? 0 : before + 1;
  return text.substr(begin, end + 1 - begin);
}

}  // namespace

bool CapturedRun::succeeded() const { return !cut_off && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0; }

std::string CapturedRun::outcome() const {
  if (cut_off) return fmt::format("cut off after {:.0f} s", seconds);
  std::string said = last_line(errors);
  return fmt::format("{} {}{}{}", WIFSIGNALED(wait_status) ? "signal" : "status",
                     WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status),
                     said.empty() ? "" : ": ", said);
}

Result<CapturedRun> run_captured(const std::vector<std::string>& words, const SignalHold& hold,
                                 const CaptureOptions& options) {
  Captured output, errors;
  if (!output.ok() || !errors.ok()) return Status::error(errno, "cannot create a temporary file: {}", strerror(errno));
  Result<pid_t> child = start_in_group(words, options.keep_output ? output.fd() : -1, errors.fd(), hold);
  if (!child.ok()) return child.status();
  CapturedRun run;
  if (wait_for_group(*child, hold, options, &run)) return Status::error(EINTR, "stopped by a signal");
  run.output = output.text();
  run.errors = errors.text();
  return run;
}

}  // namespace farside
