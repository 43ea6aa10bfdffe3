// Farside's descriptors that the child of a fork inherits and replaces by its own. It closes them, unless it shares all
// descriptors with its parent (CLONE_FILES), which still uses them. Async-signal-safe.
#pragma once
#include <atomic>

#include "base/os.h"

namespace farside {

inline std::atomic<bool> g_shares_fds{false};

// Exists while the child replaces them.
class ReplacingFds {
 public:
  explicit ReplacingFds(bool shared) { g_shares_fds.store(shared); }
  ~ReplacingFds() { g_shares_fds.store(false); }
  ReplacingFds(const ReplacingFds&) = delete;
  ReplacingFds& operator=(const ReplacingFds&) = delete;

  static bool are_shared() { return g_shares_fds.load(); }
};

inline void close_inherited(int fd) {
  if (!ReplacingFds::are_shared()) os::close(fd);
}

}  // namespace farside
