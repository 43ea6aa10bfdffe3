#include "sandbox/host_io.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sandbox/protocol.h"

namespace farside::sandbox {

void send_all(int fd, const void* data, size_t bytes) {
  for (auto* at = static_cast<const char*>(data); bytes > 0;) {
    ssize_t n = write(fd, at, bytes);
    if (n <= 0) _exit(0);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void receive_all(int fd, void* to, size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    ssize_t n = read(fd, at, bytes);
    if (n <= 0) _exit(0);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void report_loading(int status, const char* text, const char* more) {
  char all[256];
  int length = snprintf(all, sizeof all, "%s%s", text, more);
  HostReply reply = {status, static_cast<uint32_t>(length < 256 ? length : 255)};
  send_all(kControlFd, &reply, sizeof reply);
  send_all(kControlFd, all, reply.bytes);
}

void give_up(const char* text) {
  report_loading(-errno, text, strerror(errno));
  _exit(1);
}

}  // namespace farside::sandbox
