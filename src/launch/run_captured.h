// Programs that are run to be measured: in a process group of their own, with no input, what they print kept instead of
// mixed up with what we print, killed when they take too long or we are interrupted.
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
  bool cut_off = false;        // it took longer than allowed and was killed
  double seconds = 0;          // from its start to its end
  double cpu_seconds = 0;      // of it and of those of its children that it waited for
  uint64_t peak_bytes = 0;     // resident at most, of its largest process
  std::string output, errors;  // the end of what it printed

  bool succeeded() const;       // ended by itself with status 0
  std::string outcome() const;  // "status 3: no space left": how it ended and the last line of its errors
};

struct CaptureOptions {
  double seconds = 0;       // that it may take; 0: any time
  bool keep_output = true;  // else it goes to /dev/null
  // Called again and again while it runs, with its PID, instead of waiting; returns soon.
  std::function<void(pid_t)> meanwhile = nullptr;
};

// Runs words[0], a path, with all words as its arguments. Signals that ask to stop are passed on to the whole group,
// which is killed if it does not end soon; the result is then EINTR. The caller must have no threads.
Result<CapturedRun> run_captured(const std::vector<std::string>& words, const SignalHold& hold,
                                 const CaptureOptions& options = {});

}  // namespace farside
