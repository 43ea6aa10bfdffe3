// Tests of a channel over several connections; the peers are sockets of this process.
#include "transport/reconnecting.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/inject.h"
#include "transport/dial_fixture.h"

namespace farside::transport {
namespace {

TEST_F(DialServer, RequestsWithoutAReplyAreResentInOrder) {
  std::vector<wire::Greeting> greetings(2);
  std::vector<Request> first(3), again;
  Listener server({[&](int fd) {
                     ASSERT_TRUE(greet(fd, &greetings[0]));
                     for (Request& r : first) ASSERT_TRUE(receive_request(fd, &r));
                     send_bytes(fd, reply_frame(wire::Op::kWrite, first[0].header.request));
                   },
                   [&](int fd) {
                     ASSERT_TRUE(greet(fd, &greetings[1]));
                     for (Request r; again.size() < 2 && receive_request(fd, &r);) again.push_back(std::move(r));
                     for (const Request& r : again) {
                       bool read = r.op() == wire::Op::kRead;
                       send_bytes(fd, reply_frame(r.op(), r.header.request, read ? numbered(8) : FrameBytes()));
                     }
                     Request r;
                     EXPECT_FALSE(receive_request(fd, &r));  // no more requests until the channel is closed
                   }});
  FailureReport failures(nullptr);
  Dialer dialer = dialer_to(server.endpoint());
  dialer.failures = &failures;
  std::unique_ptr<Channel> channel(ReconnectingChannel::open(dialer, {}, &status_));
  ASSERT_TRUE(channel) << status_.text();
  FrameBytes data = numbered(8), back(8);
  ByteRange write = {0, 8, data.data()}, discard = {4096, 4096, nullptr}, read = {8192, 8, back.data()};
  Token tokens[3];
  ASSERT_EQ(channel->submit_write({&write, 1}, -1, &tokens[0]), 0);
  ASSERT_EQ(channel->submit_discard({&discard, 1}, &tokens[1]), 0);
  ASSERT_EQ(channel->submit_read({&read, 1}, &tokens[2]), 0);
  for (Token token : tokens) EXPECT_EQ(channel->wait(token, kPatience), 0);
  EXPECT_EQ(back, numbered(8));
  channel.reset();
  server.stop();

  ASSERT_EQ(again.size(), 2u);  // not the write, which was acknowledged
  EXPECT_EQ(again[0].op(), wire::Op::kDiscard);
  EXPECT_EQ(again[0].payload, first[1].payload);
  EXPECT_EQ(again[1].op(), wire::Op::kRead);
  EXPECT_EQ(again[1].payload, first[2].payload);
  const wire::HelloRequest &before = greetings[0].hello, &after = greetings[1].hello;
  EXPECT_NE(before.channel, 0u);
  EXPECT_EQ(after.channel, before.channel);
  EXPECT_GT(after.generation, before.generation);
  EXPECT_NE(memcmp(before.nonce, after.nonce, sizeof before.nonce), 0);
  EXPECT_TRUE(failures.reason().ok());
}

TEST_F(DialServer, ARefusedReconnectionFailsTheChannel) {
  Listener server({[](int fd) {
                     greet(fd);
                     Request r;
                     receive_request(fd, &r);
                   },
                   [](int fd) {
                     read_proof(fd);
                     send_bytes(fd, error_frame(1, ENOENT, "no such region"));
                   }});
  FailureReport failures(nullptr);
  Dialer dialer = dialer_to(server.endpoint());
  dialer.failures = &failures;
  std::unique_ptr<Channel> channel(ReconnectingChannel::open(dialer, {}, &status_));
  ASSERT_TRUE(channel) << status_.text();
  std::byte b[8];
  ByteRange read = {0, 8, b};
  Token token;
  ASSERT_EQ(channel->submit_read({&read, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), -ECONNRESET);
  EXPECT_NE(std::string(failures.reason().text()).find("no such region"), std::string::npos);
  EXPECT_EQ(channel->submit_read({&read, 1}, &token), -ECONNRESET);
  EXPECT_EQ(server.accepted(), 2);
}

// As after a change of routes, which may be changed back.
TEST_F(DialServer, AnotherHostThatAnswersIsNotTheEnd) {
  auto reject = [](int fd) {
    read_proof(fd);
    send_bytes(fd, error_frame(1, EACCES, "wrong token"));
  };
  auto ask = [](int fd) {
    greet(fd);
    Request r;
    receive_request(fd, &r);
    return r;
  };
  Listener server({[&](int fd) { ask(fd); }, reject, reject,
                   [&](int fd) {
                     Request r = ask(fd);
                     send_bytes(fd, reply_frame(wire::Op::kRead, r.header.request, numbered(8)));
                   }});
  FailureReport failures(nullptr);
  Dialer dialer = dialer_to(server.endpoint());
  dialer.failures = &failures;
  FrameBytes back(8);
  ByteRange read = {0, 8, back.data()};
  Token token;
  std::unique_ptr<Channel> channel(ReconnectingChannel::open(dialer, {}, &status_));
  ASSERT_TRUE(channel) << status_.text();
  ASSERT_EQ(channel->submit_read({&read, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), 0);
  EXPECT_EQ(back, numbered(8));
  channel.reset();
  server.stop();
  EXPECT_EQ(server.accepted(), 4);

  Listener changed({[&](int fd) { ask(fd); }, reject});
  dialer = dialer_to(changed.endpoint());
  dialer.failures = &failures;
  channel = ReconnectingChannel::open(dialer, kShort, &status_);
  ASSERT_TRUE(channel) << status_.text();
  ASSERT_EQ(channel->submit_read({&read, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), -ECONNRESET);
  EXPECT_NE(std::string(failures.reason().text()).find("rejected the token"), std::string::npos)
      << failures.reason().text();
  EXPECT_GT(changed.accepted(), 2);
}

// A connection that is replaced is reset, however it failed. Its end in good order would free the region.
TEST_F(DialServer, AReplacedConnectionIsReset) {
  std::atomic<ssize_t> after_damage{1}, at_end{1};
  auto receive_last = [](int fd) {
    std::byte byte;
    ssize_t n;
    do n = ::recv(fd, &byte, 1, 0);
    while (n > 0);
    return n < 0 ? -errno : n;
  };
  Listener server({[&](int fd) {
                     greet(fd);
                     Request r;
                     receive_request(fd, &r);
                     FrameBytes damaged = reply_frame(wire::Op::kRead, r.header.request, numbered(8));
                     damaged.back() ^= std::byte{1};
                     send_bytes(fd, damaged);
                     after_damage = receive_last(fd);
                   },
                   [&](int fd) {
                     greet(fd);
                     Request r;
                     receive_request(fd, &r);
                     send_bytes(fd, reply_frame(wire::Op::kRead, r.header.request, numbered(8)));
                     at_end = receive_last(fd);
                   }});
  Dialer dialer = dialer_to(server.endpoint());
  std::unique_ptr<Channel> channel(ReconnectingChannel::open(dialer, {}, &status_));
  ASSERT_TRUE(channel) << status_.text();
  FrameBytes back(8);
  ByteRange read = {0, 8, back.data()};
  Token token;
  ASSERT_EQ(channel->submit_read({&read, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), 0);
  EXPECT_EQ(back, numbered(8));
  channel.reset();
  server.stop();
  EXPECT_EQ(after_damage, -ECONNRESET);
  EXPECT_EQ(at_end, 0);  // the client's end
}

#ifdef FARSIDE_EXPENSIVE_CHECKS
// The descriptor of the connection that is given up is the one that the next connection needs.
TEST_F(DialServer, ThereMayBeNoDescriptorForASecondConnection) {
  std::atomic<bool> was_given_up{false};
  Listener server({[&](int fd) {
                     greet(fd);
                     Request r;
                     receive_request(fd, &r);
                     std::byte byte;
                     was_given_up = ::recv(fd, &byte, 1, 0) < 0;
                   },
                   [](int fd) {
                     greet(fd);
                     Request r;
                     receive_request(fd, &r);
                     send_bytes(fd, reply_frame(wire::Op::kRead, r.header.request, numbered(8)));
                   }});
  Dialer dialer = dialer_to(server.endpoint());
  std::unique_ptr<Channel> channel(ReconnectingChannel::open(dialer, {1'600'000'000}, &status_));
  ASSERT_TRUE(channel) << status_.text();
  inject::arm_failure("socket", 2);
  Fd first(open_socket(AF_INET));
  if (first.get() < 0) first = Fd(open_socket(AF_INET));  // the next one fails
  FrameBytes back(8);
  ByteRange read = {0, 8, back.data()};
  Token token;
  ASSERT_EQ(channel->submit_read({&read, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), 0);
  inject::arm_failure("socket", 0);
  EXPECT_EQ(back, numbered(8));
  EXPECT_TRUE(was_given_up);
}
#endif

// A request that is refused, and silence: the reasons name the server, its words, and the time.
TEST_F(DialServer, ReasonsOfFailuresAreReported) {
  std::atomic<bool> refused{false};
  Listener server({[&](int fd) {
    greet(fd);
    Request r;
    while (receive_request(fd, &r)) {  // until the client gives up
      if (!refused.exchange(true)) send_bytes(fd, error_frame(r.header.request, ENOMEM, "the server is full"));
    }
  }});
  static std::vector<std::string> reasons;
  reasons.clear();
  FailureReport failures([](const Status& reason) { reasons.push_back(reason.text()); });
  Dialer dialer = dialer_to(server.endpoint());
  dialer.failures = &failures;
  std::unique_ptr<Channel> channel(ReconnectingChannel::open(dialer, {.limit_ns = 300'000'000}, &status_));
  ASSERT_TRUE(channel) << status_.text();
  std::byte b[8] = {};
  ByteRange range = {0, 8, b};
  Token token;
  ASSERT_EQ(channel->submit_write({&range, 1}, -1, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), -ENOMEM);
  ASSERT_EQ(channel->submit_write({&range, 1}, -1, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), -ECONNRESET);
  ASSERT_EQ(reasons.size(), 2u);
  EXPECT_NE(reasons[0].find("the server is full"), std::string::npos) << reasons[0];
  EXPECT_NE(reasons[1].find("has not responded for "), std::string::npos) << reasons[1];
  for (const std::string& reason : reasons) EXPECT_NE(reason.find(dialer.endpoint.name), std::string::npos);
}

}  // namespace
}  // namespace farside::transport
