#include "transport/waiting.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace farside::transport {
namespace {

constexpr uint64_t kFastNs = 10'000, kSlowNs = 200'000;

TEST(ReplyTimes, SlowRepliesAreRarelyPolledFor) {
  ReplyTimes times;
  EXPECT_TRUE(times.allow_polling());
  for (int i = 0; i < 20; i++) times.add(kSlowNs);
  int allowed = 0;
  for (int i = 0; i < 320; i++) allowed += times.allow_polling();
  EXPECT_EQ(allowed, 10);
}

TEST(ReplyTimes, OneSlowReplyChangesNothing) {
  ReplyTimes times;
  for (int i = 0; i < 20; i++) times.add(kFastNs);
  times.add(kSlowNs);
  EXPECT_TRUE(times.allow_polling());
}

TEST(ReplyTimes, OneFastReplySuffices) {
  ReplyTimes times;
  for (int i = 0; i < 100; i++) times.add(kSlowNs);
  EXPECT_TRUE(times.are_slow());
  times.add(kFastNs);
  EXPECT_FALSE(times.are_slow());
}

class WaitingTest : public testing::Test {
 protected:
  WaitingTest() { Waiting::reset_in_child(); }  // earlier tests may have been preempted
  ReplyTimes times_;
};

TEST_F(WaitingTest, PollsForTheTimeOfAWakeUp) {
  Waiting waiting(times_);
  uint64_t begin = now_ns();
  EXPECT_TRUE(waiting.polls(begin + 1000));
  EXPECT_FALSE(waiting.polls(begin + 2 * kWakeUpNs));
}

TEST_F(WaitingTest, SleepsWhereRepliesAreSlow) {
  for (int i = 0; i < 20; i++) times_.add(kSlowNs);
  Waiting waiting(times_);
  EXPECT_FALSE(waiting.polls(now_ns()));
}

TEST_F(WaitingTest, MoreWaitingThreadsThanHalfOfTheCoresSleep) {
  std::vector<std::unique_ptr<Waiting>> others;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  for (long i = 0; i < cores; i++) others.push_back(std::make_unique<Waiting>(times_));
  {
    Waiting waiting(times_);
    EXPECT_FALSE(waiting.polls(now_ns()));
  }
  others.clear();
  Waiting waiting(times_);
  EXPECT_TRUE(waiting.polls(now_ns()));
}

// Two threads share a core: the one that polls is preempted, and learns it.
TEST_F(WaitingTest, APreemptedThreadSleeps) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  int core = 0;
  while (!CPU_ISSET(core, &all)) core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> stop{false};
  std::thread other([&] {  // inherits the core
    while (!stop) cpu_relax();
  });
  bool slept = false;
  for (uint64_t end = now_ns() + 10'000'000'000; !slept && now_ns() < end;) {
    Waiting waiting(times_);
    uint64_t begin = now_ns(), now = begin;
    while (!slept && now - begin < kWakeUpNs / 2) {
      slept = !waiting.polls(now);
      now = now_ns();
    }
    if (!slept) waiting.complete(now);
  }
  stop = true;
  other.join();
  sched_setaffinity(0, sizeof all, &all);
  EXPECT_TRUE(slept);
}

}  // namespace
}  // namespace farside::transport
