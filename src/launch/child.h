// The program as a child process: started, sent the signals that the launcher gets, waited for.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside {

// Holds back the signals that a launcher passes on. Made before any thread is started, so that all threads inherit it.
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

// Starts `path` with this process's environment and the signal mask from before the hold. No signal kills it on our
// death: a program outlives its launcher as it would outlive its shell.
Result<pid_t> start_child(const std::string& path, const std::vector<std::string>& arguments, const SignalHold& hold);

// Passes on every signal that a process sent to us, and returns the child's wait status once it has ended. Signals
// that the terminal sends reach the child by themselves and are not passed on twice.
int wait_for_child(pid_t child, const SignalHold& hold);

// True if a signal that asks to stop comes within the time.
bool stop_signal_within(const SignalHold& hold, int milliseconds);

// Ends this process as the child ended: with its exit status, or by the same signal, so that a shell sees what it would
// have seen. Returns 128 + the signal if that signal does not kill.
int end_like_child(int wait_status);

}  // namespace farside
