// Fibers that wait inside a signal handler, as the pager makes them.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "base/clock.h"
#include "farside/fiber.hpp"
#include "fiber/fake_pager.h"
#include "fiber/test_support.h"
#include "fiber/wait.h"

namespace farside::fibers {
namespace {

class WaitTest : public FaultTest {};
INSTANTIATE_TEST_SUITE_P(Workers, WaitTest, kWorkerCounts);

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
      volatile char* byte = g_pager->page(i);
      auto thread = pthread_self();
      *byte = static_cast<char>(i);
      ASSERT_TRUE(pthread_equal(thread, pthread_self()));  // the fiber stays on its thread
      ASSERT_EQ(*byte, i);
      ASSERT_FALSE(usr1_is_blocked());
    }
    if (GetParam() == 1) {  // with more workers, another thread may start late
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
      this_fiber::yield();  // a call may still suspend the fiber
      EXPECT_FALSE(in_fiber());
    }
    EXPECT_TRUE(in_fiber());
  });
  EXPECT_EQ(g_pager->waits_in_fiber, 0);
  EXPECT_EQ(farside_fiber_hold(), -EPERM);
}

TEST_P(WaitTest, AllFibersCanWaitAtOnce) {
  run_fibers(GetParam(), [&] {
    std::vector<fiber> fibers;
    for (int i = 0; i < 64; i++) {
      fibers.emplace_back([i] {
        for (int k = 0; k < 8; k++) {
          volatile int* word = reinterpret_cast<int*>(g_pager->page((i % 32 * 8 + k))) + i;  // two fibers for each page
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
          g_pager->memory[i * FakePager::kPage] = 1;
          EXPECT_EQ(caught, i);
          try {
            throw;
          } catch (int& again) {
            EXPECT_EQ(again, i);
          }
        }
        this_fiber::yield();
        // At a hint there is no handler, and the mask that the program set is kept.
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

TEST(Wait, HandlerOfARaisedSignalCanWait) {
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

TEST(Wait, IsRefusedOnAnAlternateStack) {
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

TEST_P(WaitTest, FibersBackFromAFaultRunFirstWithoutStarvingOthers) {
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

}  // namespace
}  // namespace farside::fibers
