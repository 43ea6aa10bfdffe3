// The first message of a helper to its owner, for wait_until_ready().
#pragma once
#include <sys/socket.h>

#include <cstring>

#include "base/status.h"
#include "ucx/helper.h"

namespace farside::ucx {

// False: UCX cannot be used, or the owner has ended.
inline bool report_ready(const Status& status) {
  const char* failure = status.ok() ? "" : status.text();
  return send(kControlFd, failure, strlen(failure) + 1, MSG_NOSIGNAL) > 0 && status.ok();
}

}  // namespace farside::ucx
