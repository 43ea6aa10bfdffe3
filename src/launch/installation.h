// The paths of Farside's files. A build folder has the layout of an installed tree.
//
//   PREFIX/bin/farside
//   PREFIX/lib/farside/libfarside_preload.so
//   PREFIX/lib/farside/static_loader            executes static programs
//   PREFIX/lib/farside/offload_host             executes functions of clients on a server
//   PREFIX/lib/farside/farside-ucx              uses UCX
//   PREFIX/libexec/farside/farside-NAME         executed by `farside NAME`: bench, plan, trace, track
//   PREFIX/libexec/farside/apps/     programs for benchmarks
#pragma once
#include <string>

#include "base/status.h"

namespace farside {

struct Installation {
  std::string prefix;
  std::string farside() const { return prefix + "/bin/farside"; }
  std::string preload_library() const { return prefix + "/lib/farside/libfarside_preload.so"; }
  std::string ucx_helper() const { return prefix + "/lib/farside/farside-ucx"; }
  std::string static_loader() const { return prefix + "/lib/farside/static_loader"; }
  std::string offload_host() const { return prefix + "/lib/farside/offload_host"; }
  std::string tool(const std::string& name) const { return prefix + "/libexec/farside/farside-" + name; }
  std::string applications() const { return prefix + "/libexec/farside/apps"; }
};

// The installation of the running program: the nearest folder above it that contains lib/farside. Fails if /proc is not
// mounted or there is no such folder.
Result<Installation> find_installation();

}  // namespace farside
