// A process under ptrace: started or attached to, stopped for moments, followed to its end. Only its main thread is
// traced, so signals of other threads and their system calls cost nothing; children that it forks are not traced.
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

namespace farside::cli::track {

class Tracee {
 public:
  // Both return with the process stopped. start: before the program's first instruction.
  static Result<std::unique_ptr<Tracee>> start(const std::string& path, const std::vector<std::string>& arguments,
                                               const SignalHold& hold);
  static Result<std::unique_ptr<Tracee>> attach(pid_t pid);
  // Lets it go on, untraced.
  ~Tracee();
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;

  pid_t pid() const { return pid_; }

  enum class Event {
    kNone,
    kNewProgram,  // it called exec and is stopped before the new program's first instruction
    kEnding,      // it is stopped on its method out; its memory is still there
    kEnded,
  };
  // What happened since. Passes on signals, which stop a traced thread until they are looked at: call it often.
  Event poll();

  // Stops the main thread; false if the process is ending. Others run on.
  bool stop();
  void resume();
  // Lets a process that is ending end. Its wait status, also after Event::kEnded.
  int wait_for_end();

  // Makes the stopped main thread call the kernel, and puts its registers back. -errno on failure.
  long call(long number, const std::array<uint64_t, 3>& arguments);

  uint64_t stopped_ns() const { return stopped_ns_; }
  uint64_t stops() const { return stops_; }

 private:
  explicit Tracee(pid_t pid) : pid_(pid) {}
  Status seize();
  bool take_stop(int status);  // enters what waitpid told; false if it is the end
  Event event() const;
  bool wait_for_stop();
  uint64_t find_call_instruction() const;

  pid_t pid_;
  bool child_ = false;
  bool stopped_ = false;
  bool ended_ = false;
  int status_ = 0;                 // of the last stop, or the end
  uint64_t call_instruction_ = 0;  // where the program has one that calls the kernel; found before it is stopped
  bool stop_again_ = false;        // it was stopped by a signal, and a call made it run
  uint64_t since_ns_ = 0;
  uint64_t stopped_ns_ = 0, stops_ = 0;
};

// All threads of a process, stopped as long as the object lives.
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
  std::map<pid_t, int> others_;  // and the signal that each goes on with, or 0
};

}  // namespace farside::cli::track
