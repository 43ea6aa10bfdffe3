// A process under ptrace: started or attached to, stopped for moments, followed to its end. Only its main thread is
// traced, so signals and system calls of other threads cost nothing. Forked children are not traced. All calls come
// from one thread, as ptrace requires.
#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/child.h"

namespace farside::track {

class Tracee {
 public:
  // Both return with the process stopped; start(): before the program's first instruction.
  static Result<std::unique_ptr<Tracee>> start(const std::string& path, const std::vector<std::string>& arguments,
                                               const SignalHold& hold);
  static Result<std::unique_ptr<Tracee>> attach(pid_t pid);
  // Detaches: the process continues untraced.
  ~Tracee();
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;

  pid_t pid() const { return pid_; }

  enum class Event {
    kNone,
    kNewProgram,  // it called exec, and is stopped before the new program's first instruction
    kEnding,      // it is exiting and stopped; its memory still exists
    kEnded,
  };
  // Returns the event since the last call, and passes on signals, for which the kernel stops a traced thread until they
  // are handled: call it often.
  Event poll();

  // Stops the main thread; other threads continue. False if the process is exiting or does not stop within 5 s.
  bool stop();
  void resume();
  // Resumes the process until it ends. Returns its wait status, also after Event::kEnded.
  int wait_for_end();

  // Makes the stopped main thread execute a system call, then restores its registers. -errno on failure. x86-64 only.
  long call(long number, const std::array<uint64_t, 3>& arguments);

  uint64_t stopped_ns() const { return stopped_ns_; }
  uint64_t stops() const { return stops_; }

 private:
  explicit Tracee(pid_t pid) : pid_(pid) {}
  Status seize();
  bool take_stop(int status);  // records a status from waitpid; false if it is the end
  Event event() const;
  bool wait_for_stop();
  uint64_t find_call_instruction() const;

  pid_t pid_;
  bool child_ = false;
  bool stopped_ = false;
  bool ended_ = false;
  int status_ = 0;                 // of the last stop or of the end
  uint64_t call_instruction_ = 0;  // address of a system call instruction in the program; found before it is stopped
  bool stop_again_ = false;        // it was stopped by a signal before call() made it run
  uint64_t since_ns_ = 0;
  uint64_t stopped_ns_ = 0, stops_ = 0;
};

// Stops all threads of a process during its lifetime.
class AllStopped {
 public:
  explicit AllStopped(Tracee& tracee);
  ~AllStopped();
  AllStopped(const AllStopped&) = delete;
  AllStopped& operator=(const AllStopped&) = delete;
  bool stopped() const { return stopped_; }

 private:
  bool stop_others();

  Tracee& tracee_;
  bool stopped_ = false;
  bool main_was_running_ = true;
  std::map<pid_t, int> others_;  // and the signal to deliver to each at the end, or 0
};

}  // namespace farside::track
