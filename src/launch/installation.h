// Where the parts of Farside are: a build folder has the same layout as an installed tree.
//
//   PREFIX/bin/farside
//   PREFIX/lib/farside/libfarside_preload.so
//   PREFIX/libexec/farside/farside-bench
//   PREFIX/libexec/farside/apps/     programs that benchmarks run
#pragma once
#include <string>

#include "base/status.h"

namespace farside {

struct Installation {
  std::string prefix;
  std::string farside() const { return prefix + "/bin/farside"; }
  std::string preload_library() const { return prefix + "/lib/farside/libfarside_preload.so"; }
  std::string bench() const { return prefix + "/libexec/farside/farside-bench"; }
  std::string applications() const { return prefix + "/libexec/farside/apps"; }
};

// That of the running program, which must lie below PREFIX/bin or PREFIX/libexec/farside. Fails where /proc is missing
// or the program lies elsewhere.
Result<Installation> find_installation();

}  // namespace farside
