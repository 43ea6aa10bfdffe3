// Sockets and pipes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "farside/fiber.hpp"
#include "fiber/test_support.h"

namespace farside::fibers {
namespace {

using namespace std::chrono_literals;

class SocketsTest : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, SocketsTest, kWorkerCounts);

TEST_P(SocketsTest, EchoOverSocketPairs) {
  run_fibers(GetParam(), [] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 50; i++) {
      SocketPair p;
      fibers.emplace_back([p] {
        char buffer[256];
        while (ssize_t got = farside_fiber_read(p.fds[0], buffer, sizeof buffer)) {
          ASSERT_GT(got, 0);
          ASSERT_EQ(farside_fiber_write(p.fds[0], buffer, got), got);
        }
        EXPECT_EQ(farside_fiber_close(p.fds[0]), 0);
      });
      fibers.emplace_back([p, i] {
        for (int k = 0; k < 50; k++) {
          int sent = i * 1000 + k, back = 0;
          ASSERT_EQ(farside_fiber_write(p.fds[1], &sent, sizeof sent), 4);
          ASSERT_EQ(farside_fiber_read(p.fds[1], &back, sizeof back), 4);
          ASSERT_EQ(back, sent);
        }
        EXPECT_EQ(farside_fiber_close(p.fds[1]), 0);
      });
    }
  });
}

TEST_P(SocketsTest, ServesConnectionsOverLoopback) {
  std::atomic<int> echoed{0};
  run_fibers(GetParam(), [&] {
    constexpr int kClients = 40;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(listener, 64), 0);
    socklen_t length = sizeof address;
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
    std::vector<fiber> fibers;
    for (int a = 0; a < 2; a++) {  // two fibers accept on one listener
      fibers.emplace_back([&, listener] {
        for (int k = 0; k < kClients / 2; k++) {
          int fd = farside_fiber_accept(listener, nullptr, nullptr);
          ASSERT_GE(fd, 0);
          spawn([&, fd] {
            char byte = 0;
            while (farside_fiber_read(fd, &byte, 1) == 1) {
              if (farside_fiber_write(fd, &byte, 1) == 1) echoed++;
            }
            farside_fiber_close(fd);
          });
        }
      });
    }
    std::vector<fiber> clients;
    for (int i = 0; i < kClients; i++) {
      clients.emplace_back([address] {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ASSERT_EQ(farside_fiber_connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        for (int k = 0; k < 20; k++) {
          char sent = static_cast<char>(k), back = -1;
          ASSERT_EQ(farside_fiber_send(fd, &sent, 1, 0), 1);
          ASSERT_EQ(farside_fiber_recv(fd, &back, 1, 0), 1);
          ASSERT_EQ(back, sent);
        }
        farside_fiber_close(fd);
      });
    }
    clients.clear();
    fibers.clear();
    EXPECT_EQ(farside_fiber_close(listener), 0);
  });
  EXPECT_EQ(echoed, 40 * 20);
}

TEST_P(SocketsTest, ReaderAndWriterShareADescriptor) {
  run_fibers(GetParam(), [] {
    constexpr size_t kBytes = 4 << 20;
    SocketPair p;
    auto write_all = [](int fd) {
      std::vector<char> data(kBytes, 'x');
      EXPECT_EQ(farside_fiber_write(fd, data.data(), kBytes), static_cast<ssize_t>(kBytes));
    };
    auto read_all = [](int fd) {
      std::vector<char> data(30000);
      for (size_t got = 0; got < kBytes;) {
        ssize_t n = farside_fiber_read(fd, data.data(), data.size());
        ASSERT_GT(n, 0);
        got += n;
      }
    };
    {
      fiber a([&] { write_all(p.fds[0]); }), b([&] { write_all(p.fds[1]); });
      fiber c([&] { read_all(p.fds[0]); }), d([&] { read_all(p.fds[1]); });
    }
    farside_fiber_close(p.fds[0]);
    farside_fiber_close(p.fds[1]);
  });
}

TEST_P(SocketsTest, CloseWakesWaitingFibers) {
#if defined(FARSIDE_FIBER_TSAN)
  if (GetParam() > 1) GTEST_SKIP() << "the reader may not wait yet: a true race between close and read";
#endif
  run_fibers(GetParam(), [] {
    for (int i = 0; i < 50; i++) {
      SocketPair p;
      char byte = 0;
      fiber reader([&] { EXPECT_EQ(farside_fiber_read(p.fds[0], &byte, 1), -EBADF); });
      if (i % 2) this_fiber::sleep_for(1ms);
      else this_fiber::yield();
      EXPECT_EQ(farside_fiber_close(p.fds[0]), 0);
      reader.join();
      farside_fiber_close(p.fds[1]);
    }
  });
}

TEST(Sockets, ErrorsAreTheKernels) {
  run_fibers(1, [] {
    char byte = 0;
    EXPECT_EQ(farside_fiber_read(-1, &byte, 1), -EBADF);
    EXPECT_EQ(farside_fiber_wait_ready(-1, FARSIDE_FIBER_READABLE), -EBADF);
    EXPECT_EQ(farside_fiber_wait_ready(0, 0), -EINVAL);
    EXPECT_EQ(farside_fiber_close(-1), -EBADF);
    sockaddr_in refusing = {};
    refusing.sin_family = AF_INET;
    refusing.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    refusing.sin_port = htons(1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(farside_fiber_connect(fd, reinterpret_cast<sockaddr*>(&refusing), sizeof refusing), -ECONNREFUSED);
    farside_fiber_close(fd);
    SocketPair p;
    farside_fiber_close(p.fds[1]);
    EXPECT_EQ(farside_fiber_write(p.fds[0], &byte, 1), -EPIPE);
    EXPECT_EQ(farside_fiber_read(p.fds[0], &byte, 1), 0);
    farside_fiber_close(p.fds[0]);
  });
}

TEST(Sockets, PipesAndFilesWork) {
  run_fibers(2, [] {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    char buffer[16] = {};
    fiber reader([&] { EXPECT_EQ(farside_fiber_read(fds[0], buffer, sizeof buffer), 5); });
    this_fiber::sleep_for(2ms);
    EXPECT_EQ(farside_fiber_write(fds[1], "hello", 5), 5);
    reader.join();
    farside_fiber_close(fds[0]);
    farside_fiber_close(fds[1]);
    int file = open("/proc/self/status", O_RDONLY);
    EXPECT_GT(farside_fiber_read(file, buffer, sizeof buffer), 0);
    farside_fiber_close(file);
  });
}

}  // namespace
}  // namespace farside::fibers
