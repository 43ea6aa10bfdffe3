#include "farside/fiber.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fiber/context.h"
#include "fiber/wait.h"

namespace farside::fibers {
namespace {

using namespace std::chrono_literals;

#if defined(FARSIDE_FIBER_TSAN)
constexpr int kScale = 50;  // sanitized builds do less
#elif defined(FARSIDE_FIBER_ASAN)
constexpr int kScale = 10;
#else
constexpr int kScale = 1;
#endif

// ---- fibers ----

class FiberTest : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, FiberTest, testing::Values(1u, 2u, 4u));

TEST_P(FiberTest, RunsTheFirstFiberAndReturns) {
  int runs = 0;
  run_fibers(GetParam(), [&] { runs++; });
  run_fibers(GetParam(), [&] { runs++; });
  EXPECT_EQ(runs, 2);
}

TEST_P(FiberTest, WaitsForDetachedFibers) {
  std::atomic<int> ended{0};
  run_fibers(GetParam(), [&] {
    for (int i = 0; i < 100; i++) {
      spawn([&] {
        for (int k = 0; k < 10; k++) this_fiber::yield();
        ended++;
      });
    }
  });
  EXPECT_EQ(ended, 100);
}

TEST_P(FiberTest, JoinSeesWhatTheFiberDid) {
  run_fibers(GetParam(), [] {
    for (int i = 0; i < 1000; i++) {
      int value = 0;
      fiber f([&] { value = i; });
      if (i % 2) this_fiber::yield();
      f.join();
      ASSERT_EQ(value, i);
    }
  });
}

TEST_P(FiberTest, SpawnsHundredThousand) {
  std::atomic<int> ended{0};
  run_fibers(GetParam(), [&] {
    for (int batch = 0; batch < 100 / kScale; batch++) {
      std::vector<fiber> fibers;
      for (int i = 0; i < 1000; i++) fibers.emplace_back([&] { ended++; });
    }
  });
  EXPECT_EQ(ended, 100000 / kScale);
}

TEST_P(FiberTest, YieldsHundredThousandTimes) {
  std::atomic<int> yields{0};
  run_fibers(GetParam(), [&] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 100; i++) {
      fibers.emplace_back([&] {
        for (int k = 0; k < 1000; k++) {
          this_fiber::yield();
          yields.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
  });
  EXPECT_EQ(yields, 100000);
}

#if !defined(FARSIDE_FIBER_TSAN)  // which has room for 8128 fibers
TEST(Fiber, FiftyThousandLiveAtOnce) {
  constexpr int kFibers = 50000 / kScale;
  int ended = 0;
  run_fibers(1, [&] {
    wait_group start;
    start.add();
    std::vector<fiber> fibers;
    for (int i = 0; i < kFibers; i++) {
      fibers.emplace_back([&] {
        start.wait();
        ended++;
      });
    }
    start.done();
  });
  EXPECT_EQ(ended, kFibers);
}
#endif

TEST(Fiber, OneWorkerRunsInOrder) {
  std::vector<int> order;
  run_fibers(1, [&] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 10; i++) {
      fibers.emplace_back([&, i] {
        order.push_back(i);
        this_fiber::yield();
        order.push_back(i + 10);
      });
    }
  });
  ASSERT_EQ(order.size(), 20u);
  for (int i = 0; i < 20; i++) EXPECT_EQ(order[i], i);
}

TEST(Fiber, IdleWorkersSteal) {
  // All fibers must run at once for the run to end, and none of them yields.
  std::atomic<int> running{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  run_fibers(4, [&] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 4; i++) {
      fibers.emplace_back([&] {
        running++;
        while (running < 4) std::this_thread::yield();
        std::lock_guard guard(mutex);
        threads.insert(std::this_thread::get_id());
      });
    }
  });
  EXPECT_EQ(threads.size(), 4u);
}

TEST(Fiber, RefusesMisuse) {
  EXPECT_EQ(farside_fiber_self(), nullptr);
  EXPECT_EQ(farside_fiber_yield(), -EPERM);
  EXPECT_EQ(farside_fiber_spawn(
                nullptr, [](void*) {}, nullptr),
            -EPERM);
  EXPECT_EQ(farside_fiber_run(
                257, [](void*) {}, nullptr),
            -EINVAL);
  EXPECT_EQ(farside_fiber_set_stack_size(1), -EINVAL);
  EXPECT_THROW(this_fiber::yield(), std::system_error);
  char byte = 0;
  EXPECT_EQ(farside_fiber_read(0, &byte, 1), -EPERM);
  run_fibers(1, [] {
    EXPECT_EQ(farside_fiber_run(
                  1, [](void*) {}, nullptr),
              -EBUSY);
    EXPECT_EQ(farside_fiber_set_stack_size(1 << 20), -EBUSY);
    EXPECT_EQ(farside_fiber_join(farside_fiber_self()), -EDEADLK);
    EXPECT_TRUE(in_fiber());
  });
  EXPECT_FALSE(in_fiber());
}

TEST(Fiber, SecondJoinerIsRefused) {
  run_fibers(1, [] {
    wait_group group;
    group.add();
    farside_fiber* slow = nullptr;
    ASSERT_EQ(farside_fiber_spawn(
                  &slow, [](void* g) { static_cast<wait_group*>(g)->wait(); }, &group),
              0);
    fiber first([&] { EXPECT_EQ(farside_fiber_join(slow), 0); });
    this_fiber::yield();
    EXPECT_EQ(farside_fiber_join(slow), -EINVAL);
    EXPECT_EQ(farside_fiber_detach(slow), -EINVAL);
    group.done();
  });
}

TEST(Fiber, StackSizeIsSettable) {
  ASSERT_EQ(farside_fiber_set_stack_size(4 << 20), 0);
  run_fibers(1, [] {
    volatile char big[2 << 20];
    for (size_t i = 0; i < sizeof big; i += 4096) big[i] = 1;
  });
  ASSERT_EQ(farside_fiber_set_stack_size(64 << 10), 0);
}

int deepen(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : deepen(depth - 1) + frame[0];
}

TEST(FiberDeathTest, StackOverflowMeetsTheGuard) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(run_fibers(1, [] { deepen(100000); }), "");
}

TEST(FiberDeathTest, EscapedExceptionEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(run_fibers(1, [] { throw std::runtime_error("over board"); }), "over board");
  EXPECT_DEATH(farside_fiber_run(
                   1, [](void*) { throw std::runtime_error("over board"); }, nullptr),
               "over board");
}

TEST_P(FiberTest, ExceptionsStayWithTheirFiber) {
  run_fibers(GetParam(), [] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 20; i++) {
      fibers.emplace_back([i] {
        for (int k = 0; k < 50; k++) {
          try {
            throw i * 1000 + k;
          } catch (int& first) {
            this_fiber::yield();
            try {
              this_fiber::yield();
              throw;
            } catch (int& again) {
              this_fiber::yield();
              ASSERT_EQ(again, i * 1000 + k);
            }
            ASSERT_EQ(first, i * 1000 + k);
            ASSERT_EQ(std::uncaught_exceptions(), 0);
          }
        }
      });
    }
  });
}

TEST(Fiber, UsesManyWorkersAgainAndAgain) {
  for (int i = 0; i < 50; i++) {
    std::atomic<int> sum{0};
    run_fibers(1 + i % 4, [&] {
      std::vector<fiber> fibers;
      for (int k = 0; k < 8; k++) {
        fibers.emplace_back([&] {
          this_fiber::yield();
          sum++;
        });
      }
    });
    ASSERT_EQ(sum, 8);
  }
}

// ---- time ----

TEST(Fiber, SleepersWakeInOrder) {
  std::vector<int> order;
  uint64_t start = now_ns();
  run_fibers(1, [&] {
    std::vector<fiber> fibers;
    for (int ms : {90, 30, 60, 0, 120}) {
      fibers.emplace_back([&, ms] {
        this_fiber::sleep_for(std::chrono::milliseconds(ms));
        order.push_back(ms);
      });
    }
  });
  EXPECT_EQ(order, (std::vector<int>{0, 30, 60, 90, 120}));
  EXPECT_GE(now_ns() - start, 120000000u);
}

TEST_P(FiberTest, ManySleepersKeepTheirDeadlines) {
  std::atomic<int> early{0};
  run_fibers(GetParam(), [&] {
    std::minstd_rand random(7);
    std::vector<fiber> fibers;
    for (int i = 0; i < 1000; i++) {
      auto time = std::chrono::microseconds(random() % 20000);
      fibers.emplace_back([&, time] {
        uint64_t start = now_ns();
        this_fiber::sleep_for(time);
        if (now_ns() - start < static_cast<uint64_t>(time.count()) * 1000) early++;
      });
    }
  });
  EXPECT_EQ(early, 0);
}

TEST(Fiber, SleeperWakesWhileOthersAreBusyOrAllAreAsleep) {
  run_fibers(2, [] {
    std::atomic<bool> woke{false};
    fiber sleeper([&] {
      for (int i = 0; i < 20; i++) this_fiber::sleep_for(1ms);
      woke = true;
    });
    while (!woke) this_fiber::yield();  // never idle
    sleeper.join();
    // This fiber computes, and the other worker is asleep when the timer is set.
    fiber setter([&] {
      this_fiber::sleep_for(1ms);
      woke = false;
    });
    this_fiber::yield();
    while (woke) std::this_thread::yield();
  });
}

// ---- primitives ----

TEST_P(FiberTest, MutexExcludes) {
  int counter = 0;
  run_fibers(GetParam(), [&] {
    mutex lock;
    std::vector<fiber> fibers;
    for (int i = 0; i < 32; i++) {
      fibers.emplace_back([&] {
        for (int k = 0; k < 2000 / kScale; k++) {
          std::lock_guard guard(lock);
          int seen = counter;
          if (k % 16 == 0) this_fiber::yield();
          counter = seen + 1;
        }
      });
    }
    fibers.clear();
  });
  EXPECT_EQ(counter, 32 * (2000 / kScale));
}

TEST(Mutex, ServesInOrder) {
  std::vector<int> order;
  run_fibers(1, [&] {
    mutex lock;
    lock.lock();
    std::vector<fiber> fibers;
    for (int i = 0; i < 10; i++) {
      fibers.emplace_back([&, i] {
        std::lock_guard guard(lock);
        order.push_back(i);
      });
    }
    this_fiber::yield();
    lock.unlock();
    EXPECT_FALSE(lock.try_lock());  // it went to the first in line
    fibers.clear();
  });
  for (int i = 0; i < 10; i++) EXPECT_EQ(order.at(i), i);
}

TEST(Mutex, RefusesMisuse) {
  run_fibers(1, [] {
    farside_fiber_mutex* m = nullptr;
    ASSERT_EQ(farside_fiber_mutex_create(&m), 0);
    EXPECT_EQ(farside_fiber_mutex_unlock(m), -EPERM);
    EXPECT_EQ(farside_fiber_mutex_lock(m), 0);
    EXPECT_EQ(farside_fiber_mutex_lock(m), -EDEADLK);
    EXPECT_EQ(farside_fiber_mutex_trylock(m), -EBUSY);
    EXPECT_EQ(farside_fiber_mutex_destroy(m), -EBUSY);
    fiber([&] { EXPECT_EQ(farside_fiber_mutex_unlock(m), -EPERM); }).join();
    farside_fiber_condition* c = nullptr;
    ASSERT_EQ(farside_fiber_condition_create(&c), 0);
    EXPECT_EQ(farside_fiber_mutex_unlock(m), 0);
    EXPECT_EQ(farside_fiber_condition_wait(c, m), -EPERM);
    EXPECT_EQ(farside_fiber_condition_destroy(c), 0);
    EXPECT_EQ(farside_fiber_mutex_destroy(m), 0);
  });
}

TEST_P(FiberTest, ConditionPassesATurnAround) {
  constexpr int kFibers = 8, kTurns = 2000 / kScale;
  run_fibers(GetParam(), [] {
    mutex lock;
    condition_variable changed;
    int turn = 0;
    std::vector<fiber> fibers;
    for (int i = 0; i < kFibers; i++) {
      fibers.emplace_back([&, i] {
        for (int k = 0; k < kTurns; k++) {
          std::lock_guard guard(lock);
          changed.wait(lock, [&] { return turn % kFibers == i; });
          turn++;
          changed.notify_all();
        }
      });
    }
    fibers.clear();
    EXPECT_EQ(turn, kFibers * kTurns);
  });
}

TEST(Condition, SignalWakesOneInOrder) {
  std::vector<int> order;
  run_fibers(1, [&] {
    mutex lock;
    condition_variable condition;
    std::vector<fiber> fibers;
    for (int i = 0; i < 4; i++) {
      fibers.emplace_back([&, i] {
        std::lock_guard guard(lock);
        condition.wait(lock);
        order.push_back(i);
      });
    }
    this_fiber::yield();
    condition.notify_one();
    for (int i = 0; i < 5; i++) this_fiber::yield();
    EXPECT_EQ(order.size(), 1u);
    condition.notify_all();
    fibers.clear();
  });
  for (int i = 0; i < 4; i++) EXPECT_EQ(order.at(i), i);
}

TEST_P(FiberTest, GroupWaitsForAll) {
  run_fibers(GetParam(), [] {
    for (int round = 0; round < 100; round++) {
      std::atomic<int> done{0};
      auto group = std::make_unique<wait_group>();
      group->add(10);
      for (int i = 0; i < 10; i++) {
        spawn([&] {
          if (round % 2) this_fiber::yield();
          done++;
          group->done();
        });
      }
      group->wait();
      ASSERT_EQ(done, 10);
      group.reset();  // while the last done() may still be on its way out
    }
  });
}

TEST(Group, RefusesMisuse) {
  run_fibers(1, [] {
    farside_fiber_group* g = nullptr;
    ASSERT_EQ(farside_fiber_group_create(&g), 0);
    EXPECT_EQ(farside_fiber_group_add(g, -1), -EINVAL);
    EXPECT_EQ(farside_fiber_group_add(g, INT64_MAX), 0);
    EXPECT_EQ(farside_fiber_group_add(g, 1), -EINVAL);
    EXPECT_EQ(farside_fiber_group_destroy(g), 0);
  });
}

class ChannelTest : public testing::TestWithParam<std::tuple<unsigned, size_t>> {};
INSTANTIATE_TEST_SUITE_P(WorkersAndCapacity, ChannelTest,
                         testing::Combine(testing::Values(1u, 2u, 4u), testing::Values(0, 1, 7, 64)));

TEST_P(ChannelTest, DeliversEachItemOnce) {
  constexpr int kSenders = 8, kReceivers = 5, kItems = 2000 / kScale;
  std::atomic<uint64_t> sum{0}, received{0};
  run_fibers(std::get<0>(GetParam()), [&] {
    channel<uint64_t> channel(std::get<1>(GetParam()));
    std::vector<fiber> senders, receivers;
    for (int i = 0; i < kReceivers; i++) {
      receivers.emplace_back([&] {
        while (auto item = channel.receive()) {
          sum += *item;
          received++;
        }
      });
    }
    for (int i = 0; i < kSenders; i++) {
      senders.emplace_back([&, i] {
        for (int k = 0; k < kItems; k++) ASSERT_TRUE(channel.send(i * kItems + k));
      });
    }
    senders.clear();
    channel.close();
    EXPECT_FALSE(channel.send(1));
    receivers.clear();
  });
  uint64_t n = kSenders * kItems;
  EXPECT_EQ(received, n);
  EXPECT_EQ(sum, n * (n - 1) / 2);
}

TEST_P(ChannelTest, KeepsTheOrderOfOneSender) {
  run_fibers(std::get<0>(GetParam()), [] {
    channel<int> channel(std::get<1>(GetParam()));
    fiber sender([&] {
      for (int i = 0; i < 1000; i++) channel.send(i);
      channel.close();
    });
    int expected = 0;
    while (auto item = channel.receive()) ASSERT_EQ(*item, expected++);
    EXPECT_EQ(expected, 1000);
  });
}

TEST(Channel, TriesAndCloses) {
  run_fibers(1, [] {
    farside_fiber_channel* c = nullptr;
    ASSERT_EQ(farside_fiber_channel_create(&c, 1), 0);
    void* item = nullptr;
    int a = 0;
    EXPECT_EQ(farside_fiber_channel_try_receive(c, &item), -EAGAIN);
    EXPECT_EQ(farside_fiber_channel_try_send(c, &a), 0);
    EXPECT_EQ(farside_fiber_channel_try_send(c, &a), -EAGAIN);
    fiber blocked([&] { EXPECT_EQ(farside_fiber_channel_send(c, &a), -EPIPE); });
    this_fiber::yield();
    EXPECT_EQ(farside_fiber_channel_destroy(c, nullptr), -EBUSY);
    EXPECT_EQ(farside_fiber_channel_close(c), 0);
    blocked.join();
    EXPECT_EQ(farside_fiber_channel_receive(c, &item), 0);
    EXPECT_EQ(item, &a);
    EXPECT_EQ(farside_fiber_channel_receive(c, &item), -EPIPE);
    EXPECT_EQ(farside_fiber_channel_try_receive(c, &item), -EPIPE);
    EXPECT_EQ(farside_fiber_channel_destroy(c, nullptr), 0);
    EXPECT_EQ(farside_fiber_channel_create(&c, size_t{1} << 40), -EINVAL);
    channel<std::string> left(4);  // its destructor frees what is left in it
    left.send("an item that nobody receives, too long to lie in the string itself");
  });
}

TEST(DeadlockDeathTest, IsToldInOneLine) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (unsigned workers : {1u, 3u}) {
    EXPECT_EXIT(run_fibers(workers,
                           [] {
                             mutex lock;
                             lock.lock();
                             fiber other([&] { lock.lock(); });
                             other.join();
                           }),
                testing::ExitedWithCode(134), "deadlock: all 2 fibers wait .*join 1, mutexes 1");
  }
}

// ---- sockets ----

struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0); }
  int fds[2];
};

TEST_P(FiberTest, EchoOverSocketPairs) {
  run_fibers(GetParam(), [] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 50; i++) {
      Pair p;
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

TEST_P(FiberTest, ServesConnectionsOverLoopback) {
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

TEST_P(FiberTest, ReaderAndWriterShareADescriptor) {
  run_fibers(GetParam(), [] {
    constexpr size_t kBytes = 4 << 20;
    Pair p;
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

TEST_P(FiberTest, CloseWakesWhoWaits) {
#if defined(FARSIDE_FIBER_TSAN)
  if (GetParam() > 1)
    GTEST_SKIP() << "the reader may not wait yet: a race between close and read, as tsan rightly says";
#endif
  run_fibers(GetParam(), [] {
    for (int i = 0; i < 50; i++) {
      Pair p;
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
    sockaddr_in nobody = {};
    nobody.sin_family = AF_INET;
    nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    nobody.sin_port = htons(1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(farside_fiber_connect(fd, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody), -ECONNREFUSED);
    farside_fiber_close(fd);
    Pair p;
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

// ---- waiting inside a signal handler ----

// Stands for the pager: pages are protected, a fault asks for its page, and poll opens pages asked for a while ago.
constexpr size_t kPage = 4096;
struct Pager {
  static constexpr int kPages = 256;
  char* memory = static_cast<char*>(mmap(nullptr, kPages* kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::atomic<uint64_t> due_ns[kPages] = {};
  std::atomic<int> faults{0}, polls{0}, starts{0}, ends{0}, waits_in_fiber{0};

  void forget() {
    mprotect(memory, kPages * kPage, PROT_NONE);
    for (auto& due : due_ns) due = 0;
  }
};
Pager* g_pager;

struct Awaited {
  std::atomic<uint64_t>* due;
};

bool is_due(void* arg) { return now_ns() >= static_cast<Awaited*>(arg)->due->load(); }

void on_fault(int, siginfo_t* info, void* context) {
  auto* address = static_cast<char*>(info->si_addr);
  if (address < g_pager->memory || address >= g_pager->memory + Pager::kPages * kPage) _exit(99);
  size_t page = (address - g_pager->memory) / kPage;
  g_pager->faults++;
  uint64_t never = 0;
  g_pager->due_ns[page].compare_exchange_strong(never, now_ns() + 200000);  // another fault may have asked already
  Awaited awaited = {&g_pager->due_ns[page]};
  os::SignalSet mask = 0;
  memcpy(&mask, &static_cast<ucontext_t*>(context)->uc_sigmask, sizeof mask);
  if (in_fiber(mask)) {
    g_pager->waits_in_fiber++;
    errno = 4711;
    wait_until(is_due, &awaited);
    if (errno != 4711) _exit(98);
  } else {
    while (!is_due(&awaited)) cpu_relax();
  }
  mprotect(g_pager->memory + page * kPage, kPage, PROT_READ | PROT_WRITE);
}

class WaitTest : public testing::TestWithParam<unsigned> {
 protected:
  WaitTest() {
    g_pager = new Pager;
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigfillset(&action.sa_mask);
    for (int allowed : {SIGBUS, SIGSEGV, SIGSYS}) sigdelset(&action.sa_mask, allowed);
    sigaction(SIGSEGV, &action, &before_);
    set_hooks({[] { g_pager->starts++; }, [] { g_pager->ends++; }, [] { g_pager->polls++; }});
  }
  ~WaitTest() override {
    set_hooks({});
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(g_pager->memory, Pager::kPages * kPage);
    delete g_pager;
  }
  struct sigaction before_ = {};
};
INSTANTIATE_TEST_SUITE_P(Workers, WaitTest, testing::Values(1u, 2u, 4u));

bool usr1_is_blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, SIGUSR1);
}

TEST_P(WaitTest, OthersRunWhileAFaultWaits) {
  std::atomic<int> while_waiting{0};
  run_fibers(GetParam(), [&] {
    std::atomic<bool> done{false};
    fiber other([&] {
      while (!done) {
        ASSERT_FALSE(usr1_is_blocked());
        while_waiting++;
        this_fiber::yield();
      }
    });
    this_fiber::yield();
    for (int i = 0; i < 20; i++) {
      volatile char* byte = g_pager->memory + i * kPage;
      auto thread = pthread_self();
      *byte = static_cast<char>(i);
      ASSERT_TRUE(pthread_equal(thread, pthread_self()));  // it goes on where it faulted
      ASSERT_EQ(*byte, i);
      ASSERT_FALSE(usr1_is_blocked());
    }
    if (GetParam() == 1) {  // the thread of another worker may be late
      ASSERT_GT(while_waiting, 20);
    }
    done = true;
  });
  EXPECT_EQ(g_pager->waits_in_fiber, 20);
  EXPECT_GT(g_pager->polls, 0);
  EXPECT_EQ(g_pager->starts, static_cast<int>(GetParam()));
  EXPECT_EQ(g_pager->ends, static_cast<int>(GetParam()));
}

TEST_P(WaitTest, HoldKeepsTheWorker) {
  run_fibers(GetParam(), [] {
    EXPECT_EQ(farside_fiber_release(), -EINVAL);
    {
      fiber_hold outer, inner;
      EXPECT_FALSE(in_fiber());
      g_pager->memory[0] = 1;
      this_fiber::yield();  // of one's own will
      EXPECT_FALSE(in_fiber());
    }
    EXPECT_TRUE(in_fiber());
  });
  EXPECT_EQ(g_pager->waits_in_fiber, 0);
  EXPECT_EQ(farside_fiber_hold(), -EPERM);
}

TEST_P(WaitTest, AllFibersMayWaitAtOnce) {
  run_fibers(GetParam(), [&] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 64; i++) {
      fibers.emplace_back([i] {
        for (int k = 0; k < 8; k++) {
          volatile int* word = reinterpret_cast<int*>(g_pager->memory + (i % 32 * 8 + k) * kPage) + i;  // two a page
          *word = i;
          ASSERT_EQ(*word, i);
        }
      });
    }
  });
  EXPECT_GE(g_pager->faults, 256);
}

TEST_P(WaitTest, KeepsErrnoMaskAndExceptions) {
  run_fibers(GetParam(), [&] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 32; i++) {
      fibers.emplace_back([i] {
        try {
          throw i;
        } catch (int& caught) {
          errno = i + 1000;
          g_pager->memory[i * kPage] = 1;
          EXPECT_EQ(caught, i);
          try {
            throw;
          } catch (int& again) {
            EXPECT_EQ(again, i);
          }
        }
        this_fiber::yield();
        // At a hint: no handler, and a mask of the program's own stays.
        sigset_t usr1, before;
        sigemptyset(&usr1);
        sigaddset(&usr1, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &usr1, &before);
        std::atomic<uint64_t> due{now_ns() + 100000};
        Awaited awaited = {&due};
        wait_until(is_due, &awaited);
        EXPECT_TRUE(usr1_is_blocked());
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
      });
    }
  });
}

TEST(Wait, RaisedSignalMayWait) {
  static std::atomic<bool> arrived;
  arrived = false;
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {
    if (in_fiber()) wait_until([](void*) { return arrived.load(); }, nullptr);
  };
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR2, &action, &before);
  int ran = 0;
  run_fibers(1, [&] {
    fiber other([&] {
      for (; ran < 10; ran++) {
        ASSERT_FALSE(usr1_is_blocked());
        this_fiber::yield();
      }
      arrived = true;
    });
    raise(SIGUSR2);
    EXPECT_EQ(ran, 10);
    EXPECT_FALSE(usr1_is_blocked());
  });
  sigaction(SIGUSR2, &before, nullptr);
}

TEST(Wait, NotOnAnAlternateStack) {
  static bool was_in_fiber;
  was_in_fiber = true;
  std::vector<char> memory(1 << 16);
  stack_t stack = {memory.data(), 0, memory.size()}, old = {};
  sigaltstack(&stack, &old);
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { was_in_fiber = in_fiber(); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR2, &action, &before);
  run_fibers(1, [] { raise(SIGUSR2); });
  sigaction(SIGUSR2, &before, nullptr);
  sigaltstack(&old, nullptr);
  EXPECT_FALSE(was_in_fiber);
}

TEST_P(WaitTest, FibersBackFromAFaultGoFirstButDoNotStarveOthers) {
  std::atomic<int> yields{0};
  run_fibers(GetParam(), [&] {
    std::atomic<int> left{8};
    for (int i = 0; i < 8; i++) {
      spawn([&, i] {
        std::atomic<uint64_t> due{0};
        Awaited awaited = {&due};
        for (int k = 0; k < 300; k++) {
          due = now_ns() + 1000 + i;
          wait_until(is_due, &awaited);
        }
        left--;
      });
    }
    while (left > 0) {
      yields++;
      this_fiber::yield();
    }
  });
  if (GetParam() == 1) {
    EXPECT_GT(yields, 10);
  }
}

// ---- everything at once ----

struct Storm {
  mutex lock;
  condition_variable condition;
  channel<int> messages{4};
  int guarded = 0;
  std::atomic<int> expected{0};
  std::atomic<int> balance{0};
  Pair pair;
};

void storm_step(Storm& s, std::minstd_rand& random, int depth);

void storm_fiber(Storm& s, unsigned seed, int steps, int depth) {
  std::minstd_rand random(seed);
  for (int i = 0; i < steps; i++) storm_step(s, random, depth);
}

void storm_step(Storm& s, std::minstd_rand& random, int depth) {
  switch (random() % 9) {
    case 0:
      return this_fiber::yield();
    case 1:
      return this_fiber::sleep_for(std::chrono::microseconds(random() % 300));
    case 2: {
      std::lock_guard guard(s.lock);
      int seen = s.guarded;
      if (random() % 4 == 0) this_fiber::yield();
      s.guarded = seen + 1;
      s.expected++;
      s.condition.notify_one();
      return;
    }
    case 3:
      s.messages.send(1);
      s.balance++;
      return;
    case 4:
      if (s.messages.try_receive()) s.balance--;
      return;
    case 5: {
      if (depth == 0) return;
      unsigned seed = random();
      fiber child([&s, seed, depth] { storm_fiber(s, seed, 10, depth - 1); });
      if (random() % 2) this_fiber::yield();
      return;
    }
    case 6: {
      char byte = 'x';
      EXPECT_EQ(farside_fiber_write(s.pair.fds[0], &byte, 1), 1);
      EXPECT_EQ(farside_fiber_read(s.pair.fds[1], &byte, 1), 1);
      return;
    }
    case 7: {
      volatile char* byte = g_pager->memory + random() % Pager::kPages * kPage;
      *byte;
      return;
    }
    case 8: {
      std::atomic<uint64_t> due{now_ns() + random() % 50000};
      Awaited awaited = {&due};
      wait_until(is_due, &awaited);
      return;
    }
  }
}

void storm(unsigned workers) {
  for (uint64_t end = now_ns() + 700000000, seed = 1; now_ns() < end; seed++) {
    g_pager->forget();
    run_fibers(workers, [&] {
      Storm storm;
      std::atomic<bool> over{false};
      fiber drain([&] {
        while (storm.messages.receive()) storm.balance--;
      });
      fiber waiter([&] {
        std::lock_guard guard(storm.lock);
        while (!over) storm.condition.wait(storm.lock);
      });
      {
        std::vector<fiber> fibers;
        for (unsigned i = 0; i < 24; i++) {
          fibers.emplace_back([&storm, i, seed] { storm_fiber(storm, seed * 1000 + i, 60, 2); });
        }
      }
      storm.messages.close();
      drain.join();
      {
        std::lock_guard guard(storm.lock);
        over = true;
        storm.condition.notify_all();
      }
      waiter.join();
      EXPECT_EQ(storm.guarded, storm.expected);
      EXPECT_EQ(storm.balance, 0);
      farside_fiber_close(storm.pair.fds[0]);
      farside_fiber_close(storm.pair.fds[1]);
    });
  }
}

TEST_P(WaitTest, Storm) { storm(GetParam()); }

// Signals at any moment, whose handler touches absent pages: inside the library, the loop, and other faults' waits.
class Interruptions {
 public:
  explicit Interruptions(int flags) {
    g_count = 0;
    struct sigaction action = {};
    action.sa_handler = interrupt;
    action.sa_flags = flags;
    sigaction(SIGALRM, &action, &before_);
    itimerval often = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Interruptions() {
    itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
    EXPECT_GT(g_count, 0);
  }

 private:
  static void interrupt(int) {
    int saved_errno = errno;
    sigset_t faults;  // the thread sanitizer blocks all signals in handlers
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
    if (g_running++ < kMaxRunning) {
      size_t page = static_cast<size_t>(g_count++) % Pager::kPages;
      g_pager->due_ns[page] = 0;
      mprotect(g_pager->memory + page * kPage, kPage, PROT_NONE);
      *static_cast<volatile char*>(g_pager->memory + page * kPage);
    }
    g_running--;
    errno = saved_errno;
  }
  // On a busy machine the next signal may come before the page every time: the handlers' frames would fill the stack.
  static constexpr int kMaxRunning = 8;
  static inline std::atomic<int> g_count, g_running;
  struct sigaction before_ = {};
};

TEST_P(WaitTest, InterruptedStorm) {
  Interruptions interruptions(0);
  storm(GetParam());
}

// A handler with SA_NODEFER runs with the mask of ordinary code, so its faults suspend the fiber. That is fatal where
// it interrupted malloc, but must not be where it interrupted wait_until.
TEST_P(WaitTest, InterruptedWaits) {
  Interruptions interruptions(SA_NODEFER);
  std::atomic<int> waits{0};
  run_fibers(GetParam(), [&] {
    uint64_t end = now_ns() + 500000000;
    std::vector<fiber> fibers;
    auto wait = [&, end] {
      while (now_ns() < end) {
        std::atomic<uint64_t> due{now_ns() + 20000};
        Awaited awaited = {&due};
        wait_until(is_due, &awaited);
        waits++;
      }
      farside_fiber_hold();  // what ends is freed
    };
    fiber_hold hold;  // while it allocates
    for (int i = 0; i < 8; i++) fibers.emplace_back(wait);
    farside_fiber_release();
    wait();
    fibers.clear();
  });
  EXPECT_GT(waits, 8);
}

// A new fiber's first instructions are the library's: before it has said where the worker's loop goes on, a fault in a
// handler would switch to where the loop was before.
TEST_P(WaitTest, InterruptedStarts) {
  Interruptions interruptions(SA_NODEFER);
  std::atomic<int> started{0}, ended{0};
  run_fibers(GetParam(), [&] {
    auto end_soon = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
    for (uint64_t end = now_ns() + 500000000; now_ns() < end; this_fiber::yield()) {
      for (int i = 0; i < 8; i++) {
        if (farside_fiber_spawn(nullptr, end_soon, &ended) == 0) started++;
      }
    }
  });
  EXPECT_GT(started, 0);
  EXPECT_EQ(started, ended);
}

}  // namespace
}  // namespace farside::fibers
