// Runs programs to measure them: each in its own process group, without input, its output captured, killed with its
// group if it exceeds a time limit or this process is asked to stop.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/child.h"

namespace farside {

struct CapturedRun {
  int wait_status = 0;
  bool cut_off = false;        // it exceeded the time limit and was killed
  double seconds = 0;          // wall time
  double cpu_seconds = 0;      // CPU time, including children that it waited for
  uint64_t peak_bytes = 0;     // peak resident size of its largest process
  std::string output, errors;  // the last MiB of each

  bool succeeded() const;       // exited with status 0
  std::string outcome() const;  // as "status 3: no space left": how it ended, and the last line of its errors
};

struct CaptureOptions {
  double seconds = 0;       // time limit; 0: none
  bool keep_output = true;  // otherwise it goes to /dev/null
  // Called in a loop with the program's PID while it runs, in place of waiting; it must return soon.
  std::function<void(pid_t)> meanwhile = nullptr;
};

// Runs words[0], a path, with all words as its arguments. Stop signals are passed on to the whole group, which is
// killed after 3 s if it has not ended; the result is then EINTR. The caller has no threads.
Result<CapturedRun> run_captured(const std::vector<std::string>& words, const SignalHold& hold,
                                 const CaptureOptions& options = {});

}  // namespace farside
