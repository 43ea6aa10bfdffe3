// The options of TCP connections between clients and servers, set by both sides with values of their choice.
#pragma once
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/os.h"

namespace farside::transport {

struct KeepAlive {
  int idle_s;      // of silence before the first probe
  int interval_s;  // between probes
  int probes;      // unanswered ones after which the connection is reset
};

// Sends small requests at once and turns keepalive on. Async-signal-safe. Errors are ignored: the connection works
// without the options.
inline void set_tcp_options(int fd, const KeepAlive& keep_alive) {
  auto set = [fd](int level, int option, int value) {
    os::call(SYS_setsockopt, fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, keep_alive.idle_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, keep_alive.interval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, keep_alive.probes);
}

// Closing the socket resets the connection: the peer sees a failure and not its end in good order. Async-signal-safe.
// Errors are ignored, as those of Unix sockets, which have no such option.
inline void reset_on_close(int fd) {
  linger at_once = {1, 0};
  os::call(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// Unacknowledged data for this long resets the connection. Async-signal-safe.
inline void set_tcp_timeout(int fd, int timeout_ms) {
  os::call(SYS_setsockopt, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

}  // namespace farside::transport
