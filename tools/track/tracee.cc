#include "tools/track/tracee.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/os.h"
#include "process/areas.h"

namespace farside::track {
namespace {

constexpr uint64_t kStopTimeoutNs = 5'000'000'000;
constexpr int kQuickPolls = 300;  // a running process stops within microseconds
constexpr uint64_t kPollNs = 20'000;
constexpr auto kGetDispatch = static_cast<__ptrace_request>(0x4211);  // Linux 6.4, newer than Debian 12's headers
constexpr auto kSetDispatch = static_cast<__ptrace_request>(0x4210);

// The thread's system call dispatch, as in the kernel's ptrace_sud_config.
struct DispatchConfig {
  uint64_t mode, selector, offset, length;
};

long trace(__ptrace_request request, pid_t pid, uint64_t address = 0, const void* data = nullptr) {
  return ptrace(request, pid, address, const_cast<void*>(data));
}

int event_of(int status) { return status >> 16; }

// The value of a line "Name:\tvalue" of /proc/PID/status.
std::string status_field(pid_t pid, std::string_view name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name) && line[name.size()] == ':') return line.substr(line.find_last_of("\t ") + 1);
  }
  return "";
}

Status why_not_attached(pid_t pid, int error) {
  std::string tracer = status_field(pid, "TracerPid");
  if (error == ESRCH || tracer.empty()) {
    return Status::error(ESRCH, "there is no process {}; farside track -- PROGRAM starts one", pid);
  }
  if (tracer != "0") {
    return Status::error(EBUSY, "process {} is traced by process {}, a debugger or tracker; end that first", pid,
                         tracer);
  }
  if (status_field(pid, "VmSize").empty()) {
    return Status::error(EPERM, "process {} has no user memory: it is a kernel thread, or has ended", pid);
  }
  return Status::error(
      error,
      "process {} may not be tracked ({}): run as its owner or as root; kernel.yama.ptrace_scope=0 and a "
      "container's SYS_PTRACE may be needed; farside track -- PROGRAM needs neither",
      pid, strerror(error));
}

// In the child: waits until it is traced, then executes the program. `go` is closed if the parent has died.
[[noreturn]] void execute(const std::string& path, const std::vector<std::string>& arguments, const SignalHold& hold,
                          int go, int failed) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  char byte;
  if (read(go, &byte, 1) != 1) _exit(127);
  pthread_sigmask(SIG_SETMASK, &hold.before(), nullptr);
  execv(path.c_str(), argv.data());
  int error = errno;
  (void)!write(failed, &error, sizeof error);
  _exit(127);
}

}  // namespace

Status Tracee::seize() {
  constexpr uintptr_t kOptions = PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;
  if (trace(PTRACE_SEIZE, pid_, 0, reinterpret_cast<void*>(kOptions)) == 0) return {};
  return why_not_attached(pid_, errno);
}

Result<std::unique_ptr<Tracee>> Tracee::start(const std::string& path, const std::vector<std::string>& arguments,
                                              const SignalHold& hold) {
  int go[2], failed[2];
  if (pipe2(go, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) {
    return Status::error(errno, "cannot start {}: no pipe: {}", path, strerror(errno));
  }
  pid_t child = fork();
  if (child == 0) {
    close(go[1]);
    execute(path, arguments, hold, go[0], failed[1]);
  }
  close(go[0]);
  close(failed[1]);
  std::unique_ptr<Tracee> tracee(new Tracee(child));
  tracee->child_ = true;
  Status traced = child < 0 ? Status::error(errno, "cannot start {}: {}", path, strerror(errno)) : tracee->seize();
  if (traced.ok()) (void)!write(go[1], "g", 1);
  close(go[1]);
  int error = 0;
  bool could_not = traced.ok() && read(failed[0], &error, sizeof error) == sizeof error;
  close(failed[0]);
  if (could_not) traced = Status::error(error, "cannot start {}: {}", path, strerror(error));
  if (traced.ok() && !tracee->wait_for_stop()) traced = Status::error(ESRCH, "{} was killed during startup", path);
  if (!traced.ok()) {
    if (child > 0) tracee->wait_for_end();
    return traced;
  }
  return tracee;
}

Result<std::unique_ptr<Tracee>> Tracee::attach(pid_t pid) {
  if (pid == getpid()) return Status::error(EINVAL, "process {} is this tracker; give another PID", pid);
  std::string leader = status_field(pid, "Tgid");
  if (!leader.empty() && leader != std::to_string(pid)) {
    return Status::error(EINVAL, "{} is a thread of process {}; track that", pid, leader);
  }
  std::unique_ptr<Tracee> tracee(new Tracee(pid));
  Status seized = tracee->seize();
  if (!seized.ok()) {
    tracee->ended_ = true;  // not attached: nothing to detach
    return seized;
  }
  if (tracee->stop()) return tracee;
  return Status::error(ESRCH, "process {} ended, or did not stop within 5 s", pid);
}

Tracee::~Tracee() {
  if (ended_) return;
  if (!stopped_ && !stop()) return;
  if (!ended_) trace(PTRACE_DETACH, pid_);
}

bool Tracee::take_stop(int status) {
  status_ = status;
  if (!WIFSTOPPED(status)) {
    ended_ = true;
    stopped_ = false;
    return false;
  }
  stopped_ = true;
  if (since_ns_ == 0) since_ns_ = now_ns();
  return true;
}

Tracee::Event Tracee::event() const {
  if (ended_) return Event::kEnded;
  if (!stopped_) return Event::kNone;
  if (event_of(status_) == PTRACE_EVENT_EXEC) return Event::kNewProgram;
  if (event_of(status_) == PTRACE_EVENT_EXIT) return Event::kEnding;
  return Event::kNone;
}

Tracee::Event Tracee::poll() {
  while (!stopped_ && !ended_) {
    int status = 0;
    pid_t changed = waitpid(pid_, &status, WNOHANG | __WALL);
    if (changed == 0) return Event::kNone;
    if (changed < 0 && errno == EINTR) continue;
    if (changed < 0) {
      ended_ = true;
      return Event::kEnded;
    }
    take_stop(status);
    if (stopped_ && event() == Event::kNone) resume();
  }
  return event();
}

bool Tracee::wait_for_stop() {
  uint64_t start = now_ns();
  for (int looks = 0; now_ns() - start < kStopTimeoutNs; looks++) {
    int status = 0;
    pid_t changed = waitpid(pid_, &status, WNOHANG | __WALL);
    if (changed == pid_) return take_stop(status);
    if (changed < 0 && errno != EINTR) {
      ended_ = true;
      return false;
    }
    if (looks < kQuickPolls) os::sched_yield();
    else os::nanosleep_ns(kPollNs);
  }
  return false;
}

bool Tracee::stop() {
  bool within_exec = event() == Event::kNewProgram;  // no registers here: go on to the next stop
  if (stopped_ && !within_exec) return event() == Event::kNone;
  if (ended_) return false;
  if (within_exec || call_instruction_ == 0) call_instruction_ = find_call_instruction();
  if (trace(PTRACE_INTERRUPT, pid_) != 0) return false;
  if (within_exec) resume();
  since_ns_ = now_ns();
  while (wait_for_stop()) {
    if (event() == Event::kEnding) return false;
    if (event_of(status_) == PTRACE_EVENT_STOP) return true;
    resume();  // another stop came first; the requested one follows
    since_ns_ = now_ns();
  }
  return false;
}

void Tracee::resume() {
  if (!stopped_) return;
  int event = event_of(status_), signal = WSTOPSIG(status_);
  bool stopped_by_signal = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
  if (stop_again_) trace(PTRACE_INTERRUPT, pid_);
  if (stopped_by_signal && !stop_again_) {
    trace(PTRACE_LISTEN, pid_);
  } else {
    uintptr_t deliver = event == 0 ? static_cast<uintptr_t>(signal) : 0;
    trace(PTRACE_CONT, pid_, 0, reinterpret_cast<void*>(deliver));
    stopped_ns_ += now_ns() - since_ns_;
    stops_++;
  }
  since_ns_ = 0;
  stop_again_ = false;
  stopped_ = false;
}

int Tracee::wait_for_end() {
  while (!ended_) {
    resume();
    int status = 0;
    pid_t changed = waitpid(pid_, &status, __WALL);
    if (changed == pid_) take_stop(status);
    else if (errno != EINTR) ended_ = true;
  }
  return status_;
}

uint64_t Tracee::find_call_instruction() const {
  auto areas = process::read_areas(pid_);
  if (!areas.ok()) return 0;
  std::stable_partition(areas->begin(), areas->end(), [](const process::Area& area) { return area.name == "[vdso]"; });
  for (const process::Area& area : *areas) {
    if (!area.executable || area.name == "[vsyscall]") continue;
    std::vector<unsigned char> code(area.bytes());
    iovec local = {code.data(), code.size()}, remote = {reinterpret_cast<void*>(area.begin), area.bytes()};
    ssize_t got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (got < 2) continue;
    constexpr unsigned char kCall[] = {0x0f, 0x05};
    auto found = std::search(code.begin(), code.begin() + got, std::begin(kCall), std::end(kCall));
    if (found != code.begin() + got) return area.begin + static_cast<uint64_t>(found - code.begin());
  }
  return 0;
}

// Sets the registers, single-steps the system call instruction, and restores the registers. The kernel restarts a call
// that the stop interrupted, as after any stop. Signals are blocked meanwhile, except SIGTRAP, which reports the step.
// The thread's system call dispatch is suspended.
long Tracee::call(long number, const std::array<uint64_t, 3>& arguments) {
  user_regs_struct saved;
  iovec registers = {&saved, sizeof saved};
  if (call_instruction_ == 0) return -ENOSYS;
  if (trace(PTRACE_GETREGSET, pid_, NT_PRSTATUS, &registers) != 0) return -errno;
  if (registers.iov_len != sizeof saved) return -ENOEXEC;  // a 32-bit program
  uint64_t mask = 0, all_but_traps = ~os::signal_bit(SIGTRAP);
  if (trace(PTRACE_GETSIGMASK, pid_, sizeof mask, &mask) != 0) return -errno;
  DispatchConfig dispatch = {}, none = {};
  bool trapped = trace(kGetDispatch, pid_, sizeof dispatch, &dispatch) == 0 && dispatch.mode != 0;
  if (trapped) trace(kSetDispatch, pid_, sizeof none, &none);
  trace(PTRACE_SETSIGMASK, pid_, sizeof all_but_traps, &all_but_traps);

  user_regs_struct changed = saved;
  changed.rax = static_cast<uint64_t>(number);
  changed.orig_rax = ~uint64_t{0};
  changed.rip = call_instruction_;
  changed.rdi = arguments[0];
  changed.rsi = arguments[1];
  changed.rdx = arguments[2];
  registers = {&changed, sizeof changed};
  bool by_signal = event_of(status_) == PTRACE_EVENT_STOP && WSTOPSIG(status_) != SIGTRAP;
  long result = -ESRCH;
  if (trace(PTRACE_SETREGSET, pid_, NT_PRSTATUS, &registers) == 0 && trace(PTRACE_SINGLESTEP, pid_) == 0 &&
      wait_for_stop() && event() == Event::kNone) {
    trace(PTRACE_GETREGSET, pid_, NT_PRSTATUS, &registers);
    result = static_cast<long>(changed.rax);
    registers = {&saved, sizeof saved};
    trace(PTRACE_SETREGSET, pid_, NT_PRSTATUS, &registers);
    stop_again_ |= by_signal;
    status_ = PTRACE_EVENT_STOP << 16 | SIGTRAP << 8 | 0x7f;  // the SIGTRAP of the step is not delivered
  }
  trace(PTRACE_SETSIGMASK, pid_, sizeof mask, &mask);
  if (trapped) trace(kSetDispatch, pid_, sizeof dispatch, &dispatch);
  return result;
}

AllStopped::AllStopped(Tracee& tracee) : tracee_(tracee) {
  main_was_running_ = tracee.poll() == Tracee::Event::kNone;
  if (main_was_running_ && !tracee_.stop()) return;
  while (stop_others()) {}  // until no running thread can have started another
  stopped_ = true;
}

// Stops the threads that are not stopped yet. False: there were none.
bool AllStopped::stop_others() {
  bool found = false;
  std::error_code ignored;
  for (auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", tracee_.pid()), ignored)) {
    auto thread = static_cast<pid_t>(atoi(entry.path().filename().c_str()));
    if (thread == tracee_.pid() || others_.contains(thread) || trace(PTRACE_SEIZE, thread) != 0) continue;
    found = true;
    trace(PTRACE_INTERRUPT, thread);
    int status = 0;
    while (waitpid(thread, &status, __WALL) < 0 && errno == EINTR) {}
    bool signal = WIFSTOPPED(status) && event_of(status) == 0;  // delivered when it continues
    others_[thread] = signal ? WSTOPSIG(status) : 0;
  }
  return found;
}

AllStopped::~AllStopped() {
  for (auto [thread, signal] : others_) {
    trace(PTRACE_DETACH, thread, 0, reinterpret_cast<void*>(static_cast<uintptr_t>(signal)));
  }
  if (main_was_running_) tracee_.resume();
}

}  // namespace farside::track
