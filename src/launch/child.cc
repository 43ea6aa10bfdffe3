#include "launch/child.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace farside {
namespace {

constexpr int kHeld[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

bool sent_by_process(const siginfo_t& info) { return info.si_code <= 0; }

}  // namespace

SignalHold::SignalHold() {
  sigemptyset(&held_);
  for (int signal : kHeld) sigaddset(&held_, signal);
  ::signal(SIGCHLD, SIG_DFL);  // if it were ignored, the child's status would be lost
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

// What is pending was for the child, which has ended: this process goes on, as to print a summary.
SignalHold::~SignalHold() {
  timespec at_once = {};
  while (sigtimedwait(&held_, nullptr, &at_once) > 0) {}
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Result<pid_t> start_child(const std::string& path, const std::vector<std::string>& arguments, const SignalHold& hold) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &hold.before());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  int error = posix_spawn(&child, path.c_str(), nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return Status::error(error, "cannot start {}: {}", path, strerror(error));
  return child;
}

int wait_for_child(pid_t child, const SignalHold& hold) {
  while (true) {
    int status = 0;
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child && (WIFEXITED(status) || WIFSIGNALED(status))) return status;
    siginfo_t info;
    int signal = sigwaitinfo(&hold.held(), &info);
    if (signal > 0 && signal != SIGCHLD && sent_by_process(info)) kill(child, signal);
  }
}

int signal_within(const SignalHold& hold, int milliseconds) {
  timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  int signal = sigtimedwait(&hold.held(), nullptr, &time);
  return signal > 0 ? signal : 0;
}

bool is_stop_signal(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

bool stop_signal_within(const SignalHold& hold, int milliseconds) {
  return is_stop_signal(signal_within(hold, milliseconds));
}

int end_like_child(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  int signal = WTERMSIG(wait_status);
  rlimit no_core = {0, 0};  // the program has already dumped core
  setrlimit(RLIMIT_CORE, &no_core);
  ::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  return 128 + signal;
}

}  // namespace farside
