// What the tests of fibers share: by how much sanitized builds reduce the work, numbers of workers, a pair of sockets.
#pragma once
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "fiber/stack_context.h"

namespace farside::fibers {

#if defined(FARSIDE_FIBER_TSAN)
inline constexpr int kScale = 50;
#elif defined(FARSIDE_FIBER_ASAN)
inline constexpr int kScale = 10;
#else
inline constexpr int kScale = 1;
#endif

inline const auto kWorkerCounts = testing::Values(1u, 2u, 4u);

// Two connected stream sockets. The test closes them.
struct SocketPair {
  SocketPair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0); }
  int fds[2];
};

}  // namespace farside::fibers
