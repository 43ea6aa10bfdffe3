#include "transport/faulty.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "transport/test_support.h"

namespace farside::transport {
namespace {

// Completes every request at once and counts requests. A read writes its buffer when it is polled, so that a poll after
// the channel's destruction is detected.
class CountingChannel final : public Channel {
 public:
  struct Log {
    int reads = 0, writes = 0, discards = 0, polls = 0, waits = 0;
    bool gathers = false, destroyed = false;
  };
  explicit CountingChannel(Log* log) : log_(log) {}
  ~CountingChannel() override { log_->destroyed = true; }
  int submit_read(std::span<const ByteRange> ranges, Token* token) override {
    log_->reads++;
    landing_ = ranges[0];
    return submit(token);
  }
  int submit_write(std::span<const ByteRange>, int, Token* token) override {
    log_->writes++;
    return submit(token);
  }
  int submit_discard(std::span<const ByteRange>, Token* token) override {
    log_->discards++;
    return submit(token);
  }
  void gather(bool on) override { log_->gathers = on; }
  int poll(Token) override {
    log_->polls++;
    if (landing_.near) memset(landing_.near, 0x55, landing_.bytes);
    return 1;
  }
  int wait(Token, uint64_t) override {
    log_->waits++;
    return 0;
  }

 private:
  int submit(Token* token) {
    *token = ++sequence_;
    return 0;
  }
  Log* log_;
  ByteRange landing_ = {};
  Token sequence_ = 0;
};

class Faulty : public testing::Test {
 protected:
  FaultyChannel make(FaultyChannel::Plan plan) { return {std::make_unique<CountingChannel>(&log_), plan}; }
  int submit(FaultyChannel& channel, Token* token) {
    ByteRange s = {0, sizeof buffer_, buffer_};
    return channel.submit_read({&s, 1}, token);
  }
  CountingChannel::Log log_;
  std::byte buffer_[8] = {};
};

TEST_F(Faulty, WithoutAPlanNothingFails) {
  FaultyChannel channel = make({});
  ByteRange s = {0, sizeof buffer_, buffer_};
  Token token;
  for (int i = 0; i < 100; i++) {
    ASSERT_EQ(channel.submit_read({&s, 1}, &token), 0);
    ASSERT_EQ(channel.poll(token), 1);
    ASSERT_EQ(channel.submit_write({&s, 1}, -1, &token), 0);
    ASSERT_EQ(channel.wait(token, kPatience), 0);
    ASSERT_EQ(channel.submit_discard({&s, 1}, &token), 0);
    ASSERT_EQ(channel.poll(token), 1);
  }
  EXPECT_EQ(log_.reads, 100);
  EXPECT_EQ(log_.writes, 100);
  EXPECT_EQ(log_.discards, 100);
  channel.gather(true);
  EXPECT_TRUE(log_.gathers);
}

TEST_F(Faulty, EveryNthSubmitFailsAndIsNotForwarded) {
  FaultyChannel channel = make({.fail_every = 3});
  Token token;
  for (int i = 1; i <= 12; i++) {
    int r = submit(channel, &token);
    EXPECT_EQ(r, i % 3 == 0 ? -EIO : 0) << i;
    if (r == 0) {
      EXPECT_EQ(channel.poll(token), 1);
    }
  }
  EXPECT_EQ(log_.reads, 8);
}

TEST_F(Faulty, ADeadPeerFailsAllRequestsAndWritesNoBuffer) {
  FaultyChannel channel = make({.max_delay_polls = 5, .die_after = 3});
  Token tokens[3], more;
  for (Token& token : tokens) ASSERT_EQ(submit(channel, &token), 0);
  EXPECT_FALSE(log_.destroyed);
  EXPECT_EQ(submit(channel, &more), -ECONNRESET);
  EXPECT_TRUE(log_.destroyed);
  EXPECT_EQ(channel.poll(tokens[0]), -ECONNRESET);
  EXPECT_EQ(channel.poll(tokens[0]), -EINVAL);  // the token is spent
  EXPECT_EQ(channel.wait(tokens[1], kPatience), -ECONNRESET);
  EXPECT_EQ(channel.wait(tokens[1], kPatience), -EINVAL);
  EXPECT_EQ(channel.poll(tokens[2]), -ECONNRESET);
  EXPECT_EQ(submit(channel, &more), -ECONNRESET);
  channel.gather(true);
  for (std::byte b : buffer_) EXPECT_EQ(b, std::byte{0});
}

// The number of polls until completion, for each request.
std::vector<int> delays(FaultyChannel& channel, int requests) {
  std::vector<int> out;
  std::byte buffer[8];
  ByteRange s = {0, sizeof buffer, buffer};
  for (int i = 0; i < requests; i++) {
    Token token;
    EXPECT_EQ(channel.submit_read({&s, 1}, &token), 0);
    int polls = 0;
    while (channel.poll(token) == 0) polls++;
    EXPECT_EQ(channel.poll(token), -EINVAL);
    out.push_back(polls);
  }
  return out;
}

TEST_F(Faulty, DelaysDependOnTheSeedOnly) {
  constexpr unsigned kDelay = 6;
  auto of_seed = [&](uint64_t seed) {
    FaultyChannel channel = make({.seed = seed, .max_delay_polls = kDelay});
    return delays(channel, 200);
  };
  std::vector<int> first = of_seed(1);
  EXPECT_EQ(of_seed(1), first);
  EXPECT_NE(of_seed(2), first);
  EXPECT_NE(of_seed(0), std::vector<int>(200, 0));  // every seed delays
  std::vector<int> seen(kDelay + 1);
  for (int d : first) {
    ASSERT_LE(d, static_cast<int>(kDelay));
    seen[static_cast<size_t>(d)]++;
  }
  for (int count : seen) EXPECT_GT(count, 0);
}

TEST_F(Faulty, CompletionsMayBeOutOfOrder) {
  FaultyChannel channel = make({.seed = 3, .max_delay_polls = 8});
  bool overtaken = false;
  for (int round = 0; round < 50; round++) {
    Token first, second;
    ASSERT_EQ(submit(channel, &first), 0);
    ASSERT_EQ(submit(channel, &second), 0);
    int a = 0, b = 0;
    while (a == 0 || b == 0) {
      if (a == 0) a = channel.poll(first);
      if (b == 0) b = channel.poll(second);
      overtaken |= a == 0 && b == 1;
    }
  }
  EXPECT_TRUE(overtaken);
}

TEST_F(Faulty, WaitReturnsAfterTheDelay) {
  FaultyChannel channel = make({.max_delay_polls = 1000});
  for (int i = 0; i < 10; i++) {
    Token token;
    ASSERT_EQ(submit(channel, &token), 0);
    EXPECT_EQ(channel.wait(token, kPatience), 0);
    EXPECT_EQ(channel.wait(token, kPatience), -EINVAL);
  }
  EXPECT_EQ(log_.waits, 10);
}

TEST_F(Faulty, AWaitThatTimesOutLeavesTheRequestInFlight) {
  FaultyChannel channel = make({.max_delay_polls = 2'000'000'000});
  Token token;
  ASSERT_EQ(submit(channel, &token), 0);
  EXPECT_EQ(channel.wait(token, 1), -ETIMEDOUT);
  EXPECT_EQ(channel.poll(token), 0);
}

}  // namespace
}  // namespace farside::transport
