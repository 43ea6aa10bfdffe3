// Mutex, condition variable, wait group, channel, and the report of a deadlock.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "farside/fiber.hpp"
#include "fiber/test_support.h"

namespace farside::fibers {
namespace {

class SyncTest : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, SyncTest, kWorkerCounts);

TEST_P(SyncTest, MutexExcludes) {
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
    EXPECT_FALSE(lock.try_lock());  // the first waiter owns it now
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

TEST_P(SyncTest, ConditionWakesTheFiberWhoseTurnItIs) {
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

TEST_P(SyncTest, GroupWaitsForAll) {
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
      group.reset();  // while the last done() may not have returned yet
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

TEST(Channel, TriesWithoutWaitingAndCloses) {
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
    channel<std::string> left(4);  // its destructor destroys the item that is left
    left.send("an item that is not received, too long for the buffer inside the string");
  });
}

TEST(DeadlockDeathTest, IsReportedInOneLine) {
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

}  // namespace
}  // namespace farside::fibers
