// Fibers that sleep.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "farside/fiber.hpp"
#include "fiber/test_support.h"

namespace farside::fibers {
namespace {

using namespace std::chrono_literals;

class SleepTest : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, SleepTest, kWorkerCounts);

TEST(Sleep, SleepersWakeInOrder) {
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

TEST_P(SleepTest, ManySleepersKeepTheirDeadlines) {
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

TEST(Sleep, SleeperWakesWhetherOthersAreBusyOrAsleep) {
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

}  // namespace
}  // namespace farside::fibers
