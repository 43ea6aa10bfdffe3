// The UCX relay of a run: a process (ucx/relay.h), on a Unix socket in a private directory that only the processes of
// the run can name. Used by one thread.
#pragma once
#include <memory>
#include <string>

#include "launch/embedded_server.h"
#include "ucx/helper.h"

namespace farside {

class UcxRelay {
 public:
  // ENOENT where UCX is not installed, ENODEV where it has none of the transports.
  static Result<std::unique_ptr<UcxRelay>> start(const PrivateDirectory& directory, const ucx::Settings& settings);
  const std::string& socket() const { return socket_; }
  size_t connections();

 private:
  UcxRelay() = default;
  std::string socket_;
  ucx::Helper helper_;
};

}  // namespace farside
