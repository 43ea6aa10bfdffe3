// The program as a child process: starting it, passing signals on to it, waiting for it.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside {

// Blocks the signals that a launcher passes on. Create it before any thread, so that all threads inherit the mask.
class SignalHold {
 public:
  SignalHold();
  ~SignalHold();
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;
  const sigset_t& held() const { return held_; }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t held_;
  sigset_t before_;
};

// Starts `path` with this process's environment and the signal mask from before the hold. The child is not killed when
// this process dies: a program outlives its launcher as it would outlive its shell.
Result<pid_t> start_child(const std::string& path, const std::vector<std::string>& arguments, const SignalHold& hold);

// Passes on every signal that a process sends to this one, and returns the child's wait status when it has ended.
// Signals that the terminal generates reach the whole process group, hence the child, and are not passed on.
int wait_for_child(pid_t child, const SignalHold& hold);

// The held signal that arrives within the time, or 0.
int signal_within(const SignalHold& hold, int milliseconds);

// SIGINT, SIGTERM, SIGHUP or SIGQUIT.
bool is_stop_signal(int signal);

// True if one of them arrives within the time.
bool stop_signal_within(const SignalHold& hold, int milliseconds);

// Ends this process like the child: with its exit status or by the same signal, so that a shell sees the same result.
// Returns 128 + the signal if that signal does not kill.
int end_like_child(int wait_status);

}  // namespace farside
