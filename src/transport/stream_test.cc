// Tests of the stream channel over a socket pair. The test itself is the server, so everything is in one thread and
// deterministic.
#include "transport/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "transport/test_support.h"

namespace farside::transport {
namespace {

constexpr uint64_t kRegion = uint64_t{1} << 40;

class StreamChannelTest : public testing::Test {
 protected:
  StreamChannelTest() { start(); }
  void start() {
    channel_.reset();
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    EXPECT_EQ(os::fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    peer_ = Fd(pair[1]);
    fd_ = fds_->adopt(pair[0]);
    channel_.reset(new StreamChannel(fd_, fds_.get()));
  }
  ~StreamChannelTest() override {
    channel_.reset();
    EXPECT_FALSE(is_open(fd_));
  }

  int read(std::vector<ByteRange> ranges, Token* token) { return channel_->submit_read(ranges, token); }
  // Reads that many bytes into buffer_, whose initial bytes differ from every reply.
  Token read_buffer(size_t bytes) {
    buffer_.assign(bytes, std::byte{0xee});
    Token token = 0;
    EXPECT_EQ(read({{4096, static_cast<uint32_t>(bytes), buffer_.data()}}, &token), 0);
    return token;
  }
  Request next_request() {
    Request r;
    EXPECT_TRUE(receive_request(peer_.get(), &r));
    return r;
  }
  bool has_bytes_for_peer() {
    std::byte b;
    return os::recv(peer_.get(), &b, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
  void reply(wire::Op op, uint64_t request, const FrameBytes& payload = {}) {
    send_bytes(peer_.get(), reply_frame(op, request, payload));
  }
  // The peer broke the protocol: this request fails, the connection is closed, and every later request fails.
  void expect_dead(Token token, int error) {
    EXPECT_EQ(channel_->poll(token), error);
    EXPECT_EQ(channel_->poll(token), -EINVAL);
    EXPECT_FALSE(fds_->contains(fd_));
    Token more;
    std::byte b;
    EXPECT_EQ(read({{0, 1, &b}}, &more), -ECONNRESET);
  }

  std::unique_ptr<OwnFds> fds_ = std::make_unique<OwnFds>();
  Fd peer_;
  int fd_ = -1;
  std::unique_ptr<StreamChannel> channel_;
  FrameBytes buffer_;
};

TEST_F(StreamChannelTest, AReadIsOneFrameWithItsRanges) {
  std::byte a[100], b[1];
  Token token = 0;
  ASSERT_EQ(read({{4096, 100, a}, {uint64_t{1} << 39, 1, b}}, &token), 0);
  EXPECT_NE(token, 0u);
  Request r = next_request();
  EXPECT_EQ(r.op(), wire::Op::kRead);
  EXPECT_EQ(r.header.request, token);
  wire::ListRequest list;
  ASSERT_EQ(wire::decode_list(r.op(), r.payload, kRegion, &list), 0);
  ASSERT_EQ(list.ranges.size(), 2u);
  EXPECT_EQ(list.ranges[0].offset, 4096u);
  EXPECT_EQ(list.ranges[0].bytes, 100u);
  EXPECT_EQ(list.ranges[1].offset, uint64_t{1} << 39);
  EXPECT_EQ(list.ranges[1].bytes, 1u);
  EXPECT_FALSE(has_bytes_for_peer());
}

TEST_F(StreamChannelTest, AWriteCarriesItsBytesInOrder) {
  FrameBytes data = numbered(5000);
  std::vector<ByteRange> ranges = {{0, 4000, data.data() + 1000}, {8192, 1000, data.data()}};
  Token token = 0;
  ASSERT_EQ(channel_->submit_write(ranges, -1, &token), 0);
  Request r = next_request();
  wire::ListRequest list;
  ASSERT_EQ(wire::decode_list(wire::Op::kWrite, r.payload, kRegion, &list), 0);
  ASSERT_EQ(list.data.size(), 5000u);
  EXPECT_EQ(memcmp(list.data.data(), data.data() + 1000, 4000), 0);
  EXPECT_EQ(memcmp(list.data.data() + 4000, data.data(), 1000), 0);
  EXPECT_EQ(channel_->poll(token), 0);
  reply(wire::Op::kWrite, token);
  EXPECT_EQ(channel_->poll(token), 1);
}

TEST_F(StreamChannelTest, AWriteFromAPipeTakesItsBytesBeforeItReturns) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, 0), 0);
  Fd out(fds[0]), in(fds[1]);
  FrameBytes data = numbered(300);
  ASSERT_EQ(os::write(in.get(), data.data(), data.size()), 300);
  std::vector<ByteRange> ranges = {{0, 100, nullptr}, {4096, 150, nullptr}};
  Token token = 0;
  ASSERT_EQ(channel_->submit_write(ranges, out.get(), &token), 0);
  std::byte rest[100];
  EXPECT_EQ(os::read(out.get(), rest, sizeof rest), 50);
  Request r = next_request();
  wire::ListRequest list;
  ASSERT_EQ(wire::decode_list(wire::Op::kWrite, r.payload, kRegion, &list), 0);
  ASSERT_EQ(list.data.size(), 250u);
  EXPECT_EQ(memcmp(list.data.data(), data.data(), 250), 0);
}

TEST_F(StreamChannelTest, ADiscardMayBeOfAnySize) {
  std::vector<ByteRange> ranges = {{0, UINT32_MAX, nullptr}, {uint64_t{1} << 33, 4096, nullptr}};
  Token token = 0;
  ASSERT_EQ(channel_->submit_discard(ranges, &token), 0);
  Request r = next_request();
  EXPECT_EQ(r.op(), wire::Op::kDiscard);
  wire::ListRequest list;
  ASSERT_EQ(wire::decode_list(r.op(), r.payload, kRegion, &list), 0);
  EXPECT_EQ(list.total_bytes, uint64_t{UINT32_MAX} + 4096);
  reply(wire::Op::kDiscard, token);
  EXPECT_EQ(channel_->poll(token), 1);
}

TEST_F(StreamChannelTest, AReplyMayArriveByteByByte) {
  FrameBytes data = numbered(64 + 1 + 300);
  FrameBytes a(64), b(1), c(300);
  Token token = 0;
  ASSERT_EQ(read({{0, 64, a.data()}, {4096, 1, b.data()}, {8192, 300, c.data()}}, &token), 0);
  FrameBytes frame = reply_frame(wire::Op::kRead, token, data);
  for (std::byte& byte : frame) {
    ASSERT_EQ(channel_->poll(token), 0);
    send_bytes(peer_.get(), {&byte, 1});
  }
  EXPECT_EQ(channel_->poll(token), 1);
  EXPECT_EQ(channel_->poll(token), -EINVAL);  // the token is spent
  EXPECT_TRUE(std::equal(a.begin(), a.end(), data.begin()));
  EXPECT_EQ(b[0], data[64]);
  EXPECT_TRUE(std::equal(c.begin(), c.end(), data.begin() + 65));
}

// Two replies in one stream, cut in two at every place: the cut may be in either header or payload.
TEST_F(StreamChannelTest, RepliesMayBeCutAnywhere) {
  constexpr size_t kBytes = 40;
  size_t frame_bytes = sizeof(wire::FrameHeader) + kBytes;
  for (size_t cut = 1; cut < 2 * frame_bytes; cut++) {
    FrameBytes a(kBytes), b(kBytes);
    Token first = 0, second = 0;
    ASSERT_EQ(read({{0, kBytes, a.data()}}, &first), 0);
    ASSERT_EQ(read({{4096, 10, b.data()}, {8192, kBytes - 10, b.data() + 10}}, &second), 0);
    next_request();
    next_request();
    FrameBytes both = reply_frame(wire::Op::kRead, second, numbered(kBytes, 2));  // in the other order
    FrameBytes other = reply_frame(wire::Op::kRead, first, numbered(kBytes, 1));
    both.insert(both.end(), other.begin(), other.end());
    send_bytes(peer_.get(), std::span(both).first(cut));
    EXPECT_EQ(channel_->poll(first), 0) << cut;
    send_bytes(peer_.get(), std::span(both).subspan(cut));
    EXPECT_EQ(channel_->poll(first), 1) << cut;
    EXPECT_EQ(channel_->poll(second), 1) << cut;
    ASSERT_EQ(a, numbered(kBytes, 1)) << cut;
    ASSERT_EQ(b, numbered(kBytes, 2)) << cut;
  }
}

TEST_F(StreamChannelTest, RepliesFindTheirRequestsInAnyOrder) {
  std::vector<FrameBytes> buffers(kMaxInFlight, FrameBytes(500));
  std::vector<Token> tokens(kMaxInFlight);
  for (size_t i = 0; i < kMaxInFlight; i++) {
    ASSERT_EQ(read({{i * 4096, 500, buffers[i].data()}}, &tokens[i]), 0);
  }
  Token more;
  EXPECT_EQ(read({{0, 1, buffers[0].data()}}, &more), -EAGAIN);
  for (size_t i = 0; i < kMaxInFlight; i++) EXPECT_EQ(next_request().header.request, tokens[i]);
  for (size_t i = kMaxInFlight; i-- > 0;) {
    reply(wire::Op::kRead, tokens[i], numbered(500, static_cast<unsigned>(i)));
    if (i > 0) {
      EXPECT_EQ(channel_->poll(tokens[0]), 0);
    }
  }
  for (size_t i = 0; i < kMaxInFlight; i++) {
    EXPECT_EQ(channel_->poll(tokens[i]), 1);
    EXPECT_EQ(buffers[i], numbered(500, static_cast<unsigned>(i)));
  }
  Token again;
  EXPECT_EQ(read({{0, 1, buffers[0].data()}}, &again), 0);  // there is room again
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), again), 0);
}

// The largest request there is, through a socket that takes far less at a time.
TEST_F(StreamChannelTest, LargeRequestsAndRepliesAreTransferredInPieces) {
  FrameBytes data = numbered(kMaxRequestBytes), back(kMaxRequestBytes);
  std::vector<ByteRange> writes, reads;
  constexpr size_t kPart = kMaxRequestBytes / kMaxRanges;
  for (size_t i = 0; i < kMaxRanges; i++) {
    writes.push_back({i * 8192, kPart, data.data() + i * kPart});
    reads.push_back({i * 8192, kPart, back.data() + i * kPart});
  }
  Token written = 0, token = 0;
  ASSERT_EQ(channel_->submit_write(writes, -1, &written), 0);
  ASSERT_EQ(channel_->submit_read(reads, &token), 0);  // waits behind the write
  FrameBytes got;
  FrameBytes chunk(50'000);
  size_t expected = 2 * (sizeof(wire::FrameHeader) + wire::kListBytes) + kMaxRequestBytes;
  while (got.size() < expected) {
    ASSERT_EQ(channel_->poll(written), 0);
    ssize_t n = os::recv(peer_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    ASSERT_GT(n, 0) << "nothing was sent although the peer reads; " << got.size();
    got.insert(got.end(), chunk.begin(), chunk.begin() + n);
  }
  EXPECT_EQ(got.size(), expected);
  const std::byte* sent = got.data() + sizeof(wire::FrameHeader) + wire::kListBytes;
  EXPECT_EQ(memcmp(sent, data.data(), data.size()), 0);

  reply(wire::Op::kWrite, written);
  EXPECT_EQ(channel_->poll(written), 1);
  FrameBytes frame = reply_frame(wire::Op::kRead, token, data);
  for (size_t at = 0; at < frame.size();) {
    size_t step = std::min<size_t>(30'001, frame.size() - at);
    ASSERT_EQ(channel_->poll(token), 0);
    send_bytes(peer_.get(), std::span(frame).subspan(at, step));
    at += step;
  }
  EXPECT_EQ(channel_->poll(token), 1);
  EXPECT_EQ(back, data);
}

TEST_F(StreamChannelTest, GatheredRequestsWaitForOthersOrForAPoll) {
  channel_->gather(true);
  std::byte buffers[5][8];
  Token tokens[5];
  for (int i = 0; i < 3; i++) ASSERT_EQ(read({{0, 8, buffers[i]}}, &tokens[i]), 0);
  EXPECT_FALSE(has_bytes_for_peer());
  ASSERT_EQ(read({{0, 8, buffers[3]}}, &tokens[3]), 0);
  for (int i = 0; i < 4; i++) EXPECT_EQ(next_request().header.request, tokens[i]);
  ASSERT_EQ(read({{0, 8, buffers[4]}}, &tokens[4]), 0);
  EXPECT_FALSE(has_bytes_for_peer());
  EXPECT_EQ(channel_->poll(tokens[0]), 0);  // a poll for any sends all
  EXPECT_EQ(next_request().header.request, tokens[4]);
  channel_->gather(false);
  std::byte b;
  Token token;
  ASSERT_EQ(read({{0, 1, &b}}, &token), 0);
  EXPECT_TRUE(has_bytes_for_peer());
}

TEST_F(StreamChannelTest, ListsOverTheLimitsAreRefusedAndSendNothing) {
  Token token = 7;
  std::byte b[1];
  std::vector<ByteRange> many(kMaxRanges + 1, ByteRange{0, 1, b});
  std::vector<ByteRange> large = {{0, kMaxRequestBytes, b}, {0, 1, b}}, empty = {{0, 0, b}};
  for (auto& list : {many, empty}) {
    EXPECT_EQ(channel_->submit_read(list, &token), -EINVAL);
    EXPECT_EQ(channel_->submit_write(list, -1, &token), -EINVAL);
    EXPECT_EQ(channel_->submit_discard(list, &token), -EINVAL);
  }
  EXPECT_EQ(channel_->submit_read(large, &token), -E2BIG);
  EXPECT_EQ(channel_->submit_write(large, -1, &token), -E2BIG);
  EXPECT_FALSE(has_bytes_for_peer());
}

TEST_F(StreamChannelTest, AnErrorReplyIsTheResultOfItsRequestOnly) {
  Token bad = read_buffer(16);
  FrameBytes good(8);
  Token token = 0;
  ASSERT_EQ(read({{0, 8, good.data()}}, &token), 0);
  next_request();
  next_request();
  send_bytes(peer_.get(), error_frame(bad, ENOSPC, "full"));
  EXPECT_EQ(channel_->poll(bad), -ENOSPC);
  EXPECT_EQ(buffer_, FrameBytes(16, std::byte{0xee}));
  reply(wire::Op::kRead, token, numbered(8));
  EXPECT_EQ(channel_->poll(token), 1);
  EXPECT_EQ(good, numbered(8));
}

TEST_F(StreamChannelTest, AWrongChecksumEndsTheConnection) {
  Token token = read_buffer(100);
  FrameBytes frame = reply_frame(wire::Op::kRead, token, numbered(100));
  frame[sizeof(wire::FrameHeader) + 50] ^= std::byte{1};
  send_bytes(peer_.get(), frame);
  expect_dead(token, -EBADMSG);
}

TEST_F(StreamChannelTest, AReplyWithoutARequestEndsTheConnection) {
  Token token = read_buffer(8);
  reply(wire::Op::kRead, token + kMaxInFlight, numbered(8));
  expect_dead(token, -EBADMSG);
}

TEST_F(StreamChannelTest, ASecondReplyEndsTheConnection) {
  Token first = read_buffer(8);
  std::byte b[8];
  Token second;
  ASSERT_EQ(read({{0, 8, b}}, &second), 0);
  next_request();
  next_request();
  reply(wire::Op::kRead, first, numbered(8));
  reply(wire::Op::kRead, first, numbered(8));
  EXPECT_EQ(channel_->poll(second), -EBADMSG);
  EXPECT_EQ(channel_->poll(first), 1);  // it was complete before
  EXPECT_FALSE(fds_->contains(fd_));
}

TEST_F(StreamChannelTest, AReplyOfAnotherKindEndsTheConnection) {
  FrameBytes data(8);
  std::vector<ByteRange> ranges = {{0, 8, data.data()}};
  Token token = 0;
  ASSERT_EQ(channel_->submit_write(ranges, -1, &token), 0);
  reply(wire::Op::kDiscard, token);  // of the same length
  expect_dead(token, -EBADMSG);
}

TEST_F(StreamChannelTest, AReplyOfAnotherLengthEndsTheConnection) {
  for (size_t bytes : {0u, 7u, 9u}) {
    start();
    Token token = read_buffer(8);
    reply(wire::Op::kRead, token, numbered(bytes));
    expect_dead(token, -EBADMSG);
  }
}

TEST_F(StreamChannelTest, ARequestInsteadOfAReplyEndsTheConnection) {
  Token token = read_buffer(8);
  auto header = wire::make_header(wire::Op::kPing, 0, token, 0);
  header.crc = wire::header_crc(header);
  send_bytes(peer_.get(), bytes_of_value(header));
  expect_dead(token, -EBADMSG);
}

TEST_F(StreamChannelTest, AReplyToWhatWasNotSentInFullEndsTheConnection) {
  FrameBytes data = numbered(kMaxRequestBytes);
  std::vector<ByteRange> ranges = {{0, kMaxRequestBytes, data.data()}};
  Token token = 0;
  ASSERT_EQ(channel_->submit_write(ranges, -1, &token), 0);  // more than the socket takes
  reply(wire::Op::kWrite, token);
  expect_dead(token, -EBADMSG);
}

TEST_F(StreamChannelTest, WhenThePeerClosesEverythingFails) {
  std::byte b[3][8];
  Token tokens[3];
  for (int i = 0; i < 3; i++) ASSERT_EQ(read({{0, 8, b[i]}}, &tokens[i]), 0);
  for (int i = 0; i < 3; i++) next_request();
  reply(wire::Op::kRead, tokens[1], numbered(8));
  peer_.close();
  EXPECT_EQ(channel_->wait(tokens[0], kPatience), -ECONNRESET);
  EXPECT_EQ(channel_->wait(tokens[1], kPatience), 0);  // its reply had arrived
  EXPECT_EQ(channel_->wait(tokens[2], kPatience), -ECONNRESET);
  EXPECT_EQ(read({{0, 8, b[0]}}, &tokens[0]), -ECONNRESET);
  EXPECT_FALSE(fds_->contains(fd_));
}

TEST_F(StreamChannelTest, AReplyThatIsCutOffFails) {
  Token token = read_buffer(100);
  next_request();
  FrameBytes frame = reply_frame(wire::Op::kRead, token, numbered(100));
  send_bytes(peer_.get(), std::span(frame).first(60));
  EXPECT_EQ(channel_->poll(token), 0);
  peer_.close();
  EXPECT_EQ(channel_->poll(token), -ECONNRESET);
}

TEST_F(StreamChannelTest, AWaitThatTimesOutLeavesTheRequestInFlight) {
  Token token = read_buffer(8);
  EXPECT_EQ(channel_->wait(token, 0), -ETIMEDOUT);
  EXPECT_EQ(channel_->wait(token, 1'000'000), -ETIMEDOUT);
  reply(wire::Op::kRead, token, numbered(8));
  EXPECT_EQ(channel_->wait(token, kPatience), 0);
  EXPECT_EQ(buffer_, numbered(8));
  EXPECT_EQ(channel_->wait(token, kPatience), -EINVAL);
}

TEST_F(StreamChannelTest, BytesTransferredCountsBothDirections) {
  Token token = read_buffer(8);
  size_t sent = sizeof(wire::FrameHeader) + next_request().payload.size();
  EXPECT_EQ(channel_->bytes_transferred(), sent);
  FrameBytes frame = reply_frame(wire::Op::kRead, token, numbered(8));
  send_bytes(peer_.get(), frame);
  EXPECT_EQ(channel_->poll(token), 1);
  EXPECT_EQ(channel_->bytes_transferred(), sent + frame.size());
}

}  // namespace
}  // namespace farside::transport
