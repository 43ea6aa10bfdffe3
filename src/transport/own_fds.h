// The descriptors of one store: its sockets and its memory file. The close() calls of the program are checked against
// this set, and a forked child closes all of it. Lock-free, thread-safe, async-signal-safe.
#pragma once
#include <sys/socket.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/inherited_fds.h"
#include "base/near.h"
#include "base/os.h"

namespace farside::transport {

class OwnFds : public NearObject {
 public:
  // Takes ownership of fd: moves it to a high number, which programs rarely use, and registers it. Returns the new
  // number; or -EMFILE, or -ESHUTDOWN after shut_all(), and then fd is closed.
  int adopt(int fd) {
    int high = os::move_fd_high(fd);
    if (high >= kLimit) {
      os::close(high);
      return -EMFILE;
    }
    word(high).fetch_or(bit(high));
    if (!is_shut_.load()) return high;
    close(high);
    return -ESHUTDOWN;
  }

  // Does nothing for other descriptors.
  void close(int fd) {
    if (!contains(fd)) return;
    word(fd).fetch_and(~bit(fd), std::memory_order_release);
    os::close(fd);
  }

  bool contains(int fd) const {
    return fd >= 0 && fd < kLimit && (bits_[fd / 64].load(std::memory_order_acquire) & bit(fd)) != 0;
  }

  // keep: -1 for none. In a child that shares them with its parent they stay open, and are protected here too.
  void close_all_but(int keep) {
    if (ReplacingFds::are_shared()) return;
    for_each([&](int fd) {
      if (fd != keep) close(fd);
    });
  }

  // Ends all connections, while other threads may use them, and permits no further ones.
  void shut_all() {
    is_shut_.store(true);
    for_each([](int fd) { os::call(SYS_shutdown, fd, SHUT_RDWR); });
  }

 private:
  template <typename Visit>
  void for_each(Visit visit) {
    for (int fd = 0; fd < kLimit; fd++) {
      if (fd % 64 == 0 && bits_[fd / 64].load() == 0) fd += 63;
      else if (contains(fd)) visit(fd);
    }
  }

  static constexpr int kLimit = 65536;  // move_fd_high() prefers numbers below
  static uint64_t bit(int fd) { return uint64_t{1} << (fd % 64); }
  std::atomic<uint64_t>& word(int fd) { return bits_[fd / 64]; }
  std::atomic<uint64_t> bits_[kLimit / 64] = {};
  std::atomic<bool> is_shut_{false};
};

}  // namespace farside::transport
