// What a helper process and its owner (helper.h) share.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "base/status.h"

namespace farside::ucx {

// The descriptors of a helper process, besides the standard ones.
inline constexpr int kControlFd = 3;  // one end of a pair of SOCK_SEQPACKET sockets; the helper ends when it is closed
inline constexpr int kGivenFd = 4;    // of the caller

// The first message of a helper, for wait_until_ready().
struct Ready {
  int32_t error;  // 0; ENOENT: UCX cannot be loaded; others: it has none of the transports
  char text[1020];
};

// False: UCX cannot be used, or the owner has ended.
inline bool report_ready(const Status& status) {
  Ready message = {status.ok() ? 0 : status.code(), {}};
  if (!status.ok()) strncpy(message.text, status.text(), sizeof message.text - 1);
  return send(kControlFd, &message, sizeof message, MSG_NOSIGNAL) > 0 && status.ok();
}

}  // namespace farside::ucx
