// Runs and fibers: spawn, join, stealing, stacks, exceptions.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "farside/fiber.hpp"
#include "fiber/test_support.h"
#include "fiber/wait.h"

namespace farside::fibers {
namespace {

class FiberTest : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, FiberTest, kWorkerCounts);

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

TEST_P(FiberTest, SpawnsAHundredThousand) {
  std::atomic<int> ended{0};
  run_fibers(GetParam(), [&] {
    for (int batch = 0; batch < 100 / kScale; batch++) {
      std::vector<fiber> fibers;
      for (int i = 0; i < 1000; i++) fibers.emplace_back([&] { ended++; });
    }
  });
  EXPECT_EQ(ended, 100000 / kScale);
}

TEST_P(FiberTest, YieldsAHundredThousandTimes) {
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

#if !defined(FARSIDE_FIBER_TSAN)  // the thread sanitizer supports 8128 fibers
TEST(Fiber, FiftyThousandExistAtOnce) {
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
  // The run ends only if all fibers run at the same time; none of them yields.
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

TEST(FiberDeathTest, StackOverflowHitsTheGuardPage) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(run_fibers(1, [] { deepen(100000); }), "");
}

TEST(FiberDeathTest, EscapedExceptionEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(run_fibers(1, [] { throw std::runtime_error("escaped"); }), "escaped");
  EXPECT_DEATH(farside_fiber_run(
                   1, [](void*) { throw std::runtime_error("escaped"); }, nullptr),
               "escaped");
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

TEST(Fiber, RunsRepeatedlyWithManyWorkers) {
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

}  // namespace
}  // namespace farside::fibers
