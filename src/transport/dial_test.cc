// Tests of connecting, the greeting and single requests; the peers are sockets of this process.
#include "transport/dial.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "transport/dial_fixture.h"
#include "transport/reconnecting.h"

namespace farside::transport {
namespace {

int open_fds() {
  int count = 0;
  for (int fd = 0; fd < 65536; fd++) count += is_open(fd);
  return count;
}

// ---- Endpoints and connecting ----

TEST(Dial, UnixPathsMustFit) {
  Endpoint e;
  std::string path(107, 'x');
  ASSERT_EQ(set_unix_path(&e, path.data(), path.size()), 0);
  EXPECT_TRUE(e.is_unix());
  auto* address = reinterpret_cast<sockaddr_un*>(&e.address);
  EXPECT_EQ(std::string(address->sun_path), path);
  EXPECT_EQ(e.length, offsetof(sockaddr_un, sun_path) + 108);
  path += 'x';
  EXPECT_EQ(set_unix_path(&e, path.data(), path.size()), -ENAMETOOLONG);
  EXPECT_EQ(set_unix_path(&e, path.data(), 0), -ENAMETOOLONG);
  EXPECT_EQ(set_unix_path(&e, "/tmp/ab", 6), 0);  // the length counts
  EXPECT_STREQ(address->sun_path, "/tmp/a");
}

TEST(Dial, RefusedConnectionsLeaveNoDescriptor) {
  Fd listener = bound_socket();
  int before = open_fds();
  EXPECT_EQ(dial(endpoint_of(listener.get(), "tcp"), now_ns() + kPatience), -ECONNREFUSED);
  Endpoint nowhere;
  ASSERT_EQ(set_unix_path(&nowhere, "/nonexistent/socket", 19), 0);
  EXPECT_EQ(dial(nowhere, now_ns() + kPatience), -ENOENT);
  EXPECT_EQ(open_fds(), before);
}

TEST(Dial, ConnectionsDoNotBlockAndAreNotInherited) {
  Fd listener = bound_socket();
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  Fd fd(dial(endpoint_of(listener.get(), "tcp"), now_ns() + kPatience));
  ASSERT_GE(fd.get(), 0);
  EXPECT_EQ(os::fcntl(fd.get(), F_GETFD, 0), FD_CLOEXEC);
  EXPECT_NE(os::fcntl(fd.get(), F_GETFL, 0) & O_NONBLOCK, 0);
}

TEST(Dial, WaitsForAFullBacklogUntilTheDeadline) {
  std::string path = "/tmp/farside-dial-" + std::to_string(getpid());
  Endpoint e;
  ASSERT_EQ(set_unix_path(&e, path.data(), path.size()), 0);
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&e.address), e.length), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<Fd> waiting;
  int r = 0;
  for (int i = 0; i < 10 && r >= 0; i++) {
    r = dial(e, now_ns() + 5'000'000);
    if (r >= 0) waiting.emplace_back(r);
  }
  EXPECT_EQ(r, -ETIMEDOUT);
  ASSERT_GT(waiting.size(), 0u);
  Fd accepted(::accept(listener.get(), nullptr, nullptr));  // the backlog has room for one
  Fd next(dial(e, now_ns() + kPatience));
  EXPECT_GE(next.get(), 0);
  ::unlink(path.c_str());
}

// ---- exchange ----

class Exchange : public testing::Test {
 protected:
  Exchange() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    fd_ = Fd(pair[0]);
    peer_ = Fd(pair[1]);
  }
  // The reply is in the socket before the request is sent.
  int exchange_with(const FrameBytes& reply, size_t reply_bytes = sizeof(wire::ReserveReply)) {
    if (!reply.empty()) send_bytes(peer_.get(), reply);
    got_.assign(reply_bytes, std::byte{0});
    wire::ReserveRequest request = {wire::kSlabBytes, 5};
    return exchange(fd_.get(), wire::Op::kGrow, std::as_bytes(std::span(&request, 1)), got_, now_ns() + kPatience,
                    &error_, {&passed_, 1});
  }
  // Sends bytes and passes descriptors with them.
  void send_passing(const FrameBytes& bytes, const std::vector<int>& fds) {
    iovec piece = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    ASSERT_EQ(::sendmsg(peer_.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  }
  FrameBytes good_reply() { return reply_frame(wire::Op::kGrow, 1, bytes_of_value(wire::ReserveReply{77})); }

  Fd fd_, peer_;
  FrameBytes got_;
  wire::ErrorReply error_ = {};
  int passed_ = 99;
};

TEST_F(Exchange, SendsOneFrameAndReceivesItsReply) {
  ASSERT_EQ(exchange_with(good_reply()), 0);
  EXPECT_EQ(got_, bytes_of_value(wire::ReserveReply{77}));
  EXPECT_EQ(error_.code, 0u);
  EXPECT_EQ(passed_, -1);
  Request r;
  ASSERT_TRUE(receive_request(peer_.get(), &r));
  EXPECT_EQ(r.op(), wire::Op::kGrow);
  wire::ReserveRequest request;
  ASSERT_EQ(wire::decode_reserve(r.payload, &request), 0);
  EXPECT_EQ(request.sequence, 5u);
}

TEST_F(Exchange, AnErrorReplyDiffersFromABrokenConnection) {
  EXPECT_EQ(exchange_with(error_frame(1, ENOMEM, "no more memory")), -ENOMEM);
  EXPECT_EQ(error_.code, static_cast<uint32_t>(ENOMEM));
  EXPECT_STREQ(error_.text, "no more memory");
  ASSERT_EQ(exchange_with(good_reply()), 0);  // the connection still works
  peer_.close();
  EXPECT_LT(exchange_with({}), 0);
  EXPECT_EQ(error_.code, 0u);
}

TEST_F(Exchange, RepliesThatDoNotMatchTheRequestAreRejected) {
  FrameBytes broken = good_reply();
  broken.back() ^= std::byte{1};
  wire::FrameHeader request = wire::make_header(wire::Op::kGrow, 0, 1, 0);
  request.crc = wire::header_crc(request);
  for (const FrameBytes& bad :
       {broken, reply_frame(wire::Op::kShrink, 1, bytes_of_value(wire::ReserveReply{})),
        reply_frame(wire::Op::kGrow, 2, bytes_of_value(wire::ReserveReply{})), reply_frame(wire::Op::kGrow, 1),
        reply_frame(wire::Op::kGrow, 1, numbered(9)), bytes_of_value(request), numbered(100)}) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    fd_ = Fd(pair[0]);
    peer_ = Fd(pair[1]);
    EXPECT_EQ(exchange_with(bad), -EBADMSG);
    EXPECT_EQ(error_.code, 0u);
  }
}

TEST_F(Exchange, SilenceEndsAtTheDeadline) {
  std::byte reply[8];
  EXPECT_EQ(exchange(fd_.get(), wire::Op::kGrow, {}, reply, now_ns() + 2'000'000, &error_), -ETIMEDOUT);
  FrameBytes part = good_reply();
  part.resize(part.size() - 1);
  send_bytes(peer_.get(), part);
  EXPECT_EQ(exchange(fd_.get(), wire::Op::kGrow, {}, reply, now_ns() + 2'000'000, &error_), -ETIMEDOUT);
}

TEST_F(Exchange, APeerThatClosesIsLost) {
  FrameBytes part = good_reply();
  part.resize(part.size() - 1);
  send_bytes(peer_.get(), part);
  ::shutdown(peer_.get(), SHUT_WR);
  EXPECT_EQ(exchange_with({}), -ECONNRESET);
}

TEST_F(Exchange, RequestsThatAreTooLargeAreNotSent) {
  FrameBytes large(sizeof(wire::ServerReport) + 1);
  std::byte reply[8];
  EXPECT_EQ(exchange(fd_.get(), wire::Op::kHello, large, reply, now_ns() + kPatience, &error_), -EINVAL);
  std::byte b;
  EXPECT_EQ(os::recv(peer_.get(), &b, 1, MSG_DONTWAIT), -EAGAIN);
}

TEST_F(Exchange, APassedDescriptorIsReturned) {
  Fd memory(os::memfd_create("dial_test", 0));
  send_passing(good_reply(), {memory.get()});
  ASSERT_EQ(exchange_with({}), 0);
  ASSERT_GE(passed_, 0);
  EXPECT_EQ(os::fcntl(passed_, F_GETFD, 0), FD_CLOEXEC);
  os::close(passed_);
}

TEST_F(Exchange, NoDescriptorLeaks) {
  Fd memory(os::memfd_create("dial_test", 0));
  int before = open_fds();
  send_passing(good_reply(), {memory.get(), memory.get(), memory.get()});
  ASSERT_EQ(exchange_with({}), 0);
  EXPECT_EQ(open_fds(), before + 1);  // the first is returned; the others were not requested
  os::close(passed_);

  send_passing(error_frame(1, EACCES, "no"), {memory.get()});
  EXPECT_EQ(exchange_with({}), -EACCES);
  EXPECT_EQ(passed_, -1);
  EXPECT_EQ(open_fds(), before);

  send_passing(good_reply(), {memory.get()});
  std::byte reply[sizeof(wire::ReserveReply)];
  EXPECT_EQ(exchange(fd_.get(), wire::Op::kGrow, {}, reply, now_ns() + kPatience, &error_),
            0);  // the caller takes no descriptor
  EXPECT_EQ(open_fds(), before);
}

// ---- Dialling a server, with retries ----

TEST_F(DialServer, AGreetedConnectionIsRegistered) {
  Listener server({[](int fd) { greet(fd); }});
  wire::HelloReply reply;
  int fd = dialer_to(server.endpoint()).open(&status_, &reply);
  ASSERT_GE(fd, 0) << status_.text();
  EXPECT_TRUE(fds_->contains(fd));
  EXPECT_EQ(reply.region, 42u);
  EXPECT_EQ(std::count(reply.secret, std::end(reply.secret), 0), wire::kSecretBytes);  // decrypted
}

// A process that took the address of a server learns no secret, and the client sends it nothing more.
TEST_F(DialServer, AServerThatDoesNotKnowTheKeyIsRefused) {
  bool ended[3] = {};
  auto answer = [&](int fd, const auto& change, bool* end) {
    wire::Greeting greeting;
    if (!receive_greeting(fd, &greeting)) return;
    wire::HelloReply reply = reply_to(greeting);
    change(&reply, greeting);
    send_bytes(fd, reply_frame(wire::Op::kProve, 1, bytes_of_value(reply)));
    Request r;
    *end = !receive_request(fd, &r);
  };
  Listener server({[&](int fd) {
                     answer(
                         fd, [](auto* r, auto&) { r->proof[31] ^= 1; }, &ended[0]);
                   },
                   [&](int fd) {
                     answer(
                         fd, [](auto* r, auto&) { r->region++; }, &ended[1]);
                   },
                   [&](int fd) {  // sends the client's proof back
                     answer(
                         fd,
                         [](auto* r, auto& greeting) {
                           wire::Proof proof = wire::client_proof(key_for(greeting.hello), greeting);
                           memcpy(r->proof, proof.proof, sizeof r->proof);
                         },
                         &ended[2]);
                   }});
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(dial_with_retry(dialer_to(server.endpoint()), {}, &status_), -EKEYREJECTED);
    EXPECT_EQ(status_.code(), EACCES);
    EXPECT_NE(strstr(status_.text(), "did not prove"), nullptr) << status_.text();
  }
  server.stop();
  EXPECT_EQ(server.accepted(), 3);
  for (bool end : ended) EXPECT_TRUE(end);
}

TEST_F(DialServer, ARefusedConnectionIsNotRetried) {
  Fd refusing = bound_socket();
  int before = open_fds();
  EXPECT_EQ(dial_with_retry(dialer_to(endpoint_of(refusing.get(), "tcp://here:1")), {3600'000'000'000}, &status_),
            -ECONNREFUSED);  // although retries may take an hour
  EXPECT_EQ(status_.code(), ECONNREFUSED);
  EXPECT_NE(strstr(status_.text(), "tcp://here:1"), nullptr) << status_.text();
  EXPECT_EQ(open_fds(), before);
}

TEST_F(DialServer, AnErrorReplyIsNotRetried) {
  Listener server({[](int fd) {
    read_proof(fd);
    send_bytes(fd, error_frame(1, EACCES, "wrong token"));
  }});
  EXPECT_EQ(dial_with_retry(dialer_to(server.endpoint()), {3600'000'000'000}, &status_), -EACCES);
  EXPECT_EQ(status_.code(), EACCES);
  EXPECT_EQ(server.accepted(), 1);
}

TEST_F(DialServer, BrokenGreetingsAreRepeatedUntilOneSucceeds) {
  Listener server({read_hello, read_proof, read_hello, [](int fd) { greet(fd); }});
  int fd = dial_with_retry(dialer_to(server.endpoint()), {}, &status_);
  EXPECT_GE(fd, 0) << status_.text();
  EXPECT_EQ(server.accepted(), 4);
  EXPECT_TRUE(fds_->contains(fd));
}

TEST_F(DialServer, RetriesEndAtTheLimit) {
  Listener server({read_hello});
  int before = open_fds();
  EXPECT_EQ(dial_with_retry(dialer_to(server.endpoint()), kShort, &status_), -ECONNRESET);
  EXPECT_EQ(status_.code(), ECONNRESET);
  EXPECT_GE(server.accepted(), 2);
  EXPECT_LE(server.accepted(), 40);  // the first pause is 5 to 10 ms, and the limit of each doubles
  for (int i = 0; i < 1000 && open_fds() > before; i++) os::nanosleep_ns(1'000'000);  // the server closes its end
  EXPECT_EQ(open_fds(), before);
}

TEST(RetryPolicyTest, OnlyNetworkErrorsAreTransient) {
  for (int error : {ETIMEDOUT, ENETUNREACH, EHOSTUNREACH, ENETDOWN, ECONNRESET, EPIPE, EAGAIN}) {
    EXPECT_TRUE(is_transient(-error)) << error;
    EXPECT_FALSE(is_transient(error)) << error;
  }
  for (int error : {ECONNREFUSED, EACCES, EBADMSG, EPROTONOSUPPORT, ENOENT, EMFILE, EINVAL, ENOMEM}) {
    EXPECT_FALSE(is_transient(-error)) << error;
  }
  EXPECT_FALSE(is_transient(0));
}

TEST(RetryPolicyTest, PausesAreSpread) {
  constexpr uint64_t kPause = 1'000'000;
  unsigned early = 0, late = 0;
  for (int i = 0; i < 1000; i++) {
    uint64_t pause = spread_pause(kPause);
    EXPECT_GE(pause, kPause / 2);
    EXPECT_LE(pause, kPause);
    (pause < kPause * 3 / 4 ? early : late)++;
  }
  EXPECT_GT(early, 300u);  // of two equal halves
  EXPECT_GT(late, 300u);
  EXPECT_EQ(spread_pause(0), 0u);
}

TEST(RetryPolicyTest, SeveralAttemptsFitInTheLimit) {
  RetryPolicy policy;
  EXPECT_LT(policy.limit_ns, 30'000'000'000u);
  EXPECT_GE(policy.limit_ns / policy.attempt_timeout_ns(), 4u);
  EXPECT_GT(policy.attempt_timeout_ns(), ReconnectingChannel::kFirstPauseNs);
}

}  // namespace
}  // namespace farside::transport
