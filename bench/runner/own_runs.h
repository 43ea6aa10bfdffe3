// For benchmarks that run `farside` itself: its path, a folder for their files, and a server's token for the runs.
#pragma once
#include <memory>
#include <string>

#include "bench/runner/setup.h"
#include "report/files.h"

namespace farside::bench {

struct OwnRuns {
  std::string farside;                          // path of the program
  std::unique_ptr<PrivateDirectory> directory;  // removed with it

  static Result<OwnRuns> prepare(const Setup& setup);
};

}  // namespace farside::bench
