#include "transport/ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "transport/test_support.h"

namespace farside::transport {
namespace {

TEST(Segments, ListsAreCheckedAgainstTheLimits) {
  uint64_t total = 0;
  std::vector<ByteRange> list(kMaxRanges, ByteRange{0, 1, nullptr});
  EXPECT_EQ(check_ranges({}, 100, &total), -EINVAL);
  EXPECT_EQ(check_ranges(list, kMaxRanges, &total), 0);
  EXPECT_EQ(total, kMaxRanges);
  EXPECT_EQ(check_ranges(list, kMaxRanges - 1, &total), -E2BIG);
  list.back().bytes = 0;
  EXPECT_EQ(check_ranges(list, 1000, &total), -EINVAL);
  list.back().bytes = 1;
  list.push_back({0, 1, nullptr});
  EXPECT_EQ(check_ranges(list, 1000, &total), -EINVAL);
}

TEST(Segments, SumsDoNotOverflow) {
  uint64_t total = 0;
  std::vector<ByteRange> list(2, ByteRange{0, UINT32_MAX, nullptr});
  EXPECT_EQ(check_ranges(list, kNoByteLimit, &total), 0);
  EXPECT_EQ(total, 2 * uint64_t{UINT32_MAX});
  EXPECT_EQ(check_ranges(list, kMaxRequestBytes, &total), -E2BIG);
}

// Advancing by any number of bytes, in one step or in two, leaves the same rest as advancing byte by byte.
TEST(Segments, AdvanceMovesTheFrontByBytes) {
  FrameBytes buffer(100);
  const std::vector<size_t> lengths = {1, 5, 64, 1, 29};
  for (size_t cut = 0; cut <= buffer.size(); cut++) {
    std::vector<iovec> pieces;
    size_t at = 0;
    for (size_t length : lengths) {
      pieces.push_back({buffer.data() + at, length});
      at += length;
    }
    ASSERT_EQ(at, buffer.size());
    pieces.push_back({nullptr, 77});  // behind the end: must not be accessed
    iovec* front = pieces.data();
    size_t first = cut / 2;
    advance(&front, first);
    advance(&front, cut - first);
    if (cut < buffer.size()) {
      EXPECT_EQ(front->iov_base, buffer.data() + cut) << cut;
    }
    size_t left = 0;
    for (iovec* p = front; p < pieces.data() + lengths.size(); p++) left += p->iov_len;
    EXPECT_EQ(left, buffer.size() - cut);
    EXPECT_EQ(front == pieces.data() + lengths.size(), cut == buffer.size());
    EXPECT_EQ(pieces.back().iov_len, 77u);
  }
}

class Pipe : public testing::Test {
 protected:
  Pipe() {
    int fds[2];
    EXPECT_EQ(os::pipe(fds, 0), 0);
    out_ = Fd(fds[0]);
    in_ = Fd(fds[1]);
  }
  void fill(const FrameBytes& data) {
    EXPECT_EQ(os::write(in_.get(), data.data(), data.size()), static_cast<ssize_t>(data.size()));
  }
  size_t bytes_left() {
    in_.close();
    std::byte buffer[1024];
    size_t left = 0;
    for (ssize_t n; (n = os::read(out_.get(), buffer, sizeof buffer)) > 0;) left += static_cast<size_t>(n);
    return left;
  }
  Fd out_, in_;
};

TEST_F(Pipe, IsReadIntoThePiecesInOrder) {
  FrameBytes data = numbered(1000), to(1000);
  fill(numbered(1020));
  iovec pieces[] = {{to.data() + 900, 100}, {to.data(), 1}, {to.data() + 1, 899}};
  ASSERT_EQ(read_pipe(out_.get(), pieces, 3, 1000), 0);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 100, to.begin() + 900));
  EXPECT_TRUE(std::equal(data.begin() + 100, data.end(), to.begin()));
  EXPECT_EQ(bytes_left(), 20u);  // exactly the requested number was read
}

TEST_F(Pipe, ThatFillsSlowlyIsReadToTheEnd) {
  constexpr size_t kBytes = 300'000;  // more than a pipe holds
  FrameBytes data = numbered(kBytes), to(kBytes);
  std::thread writer([&] {
    std::mt19937 random(1);
    for (size_t at = 0; at < kBytes;) {
      ssize_t n = os::write(in_.get(), data.data() + at, std::min<size_t>(1 + random() % 10'000, kBytes - at));
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  });
  std::vector<iovec> pieces;
  std::mt19937 random(2);
  for (size_t at = 0; at < kBytes;) {
    size_t length = std::min<size_t>(1 + random() % 20'000, kBytes - at);
    pieces.push_back({to.data() + at, length});
    at += length;
  }
  EXPECT_EQ(read_pipe(out_.get(), pieces.data(), static_cast<int>(pieces.size()), kBytes), 0);
  writer.join();
  EXPECT_EQ(to, data);
}

TEST_F(Pipe, ThatEndsTooEarlyIsAnError) {
  fill(numbered(10));
  in_.close();
  FrameBytes to(11);
  iovec piece = {to.data(), to.size()};
  EXPECT_EQ(read_pipe(out_.get(), &piece, 1, to.size()), -EPIPE);
}

TEST_F(Pipe, ReadErrorsAreReturned) {
  FrameBytes to(10);
  iovec piece = {to.data(), to.size()};
  EXPECT_EQ(read_pipe(-1, &piece, 1, to.size()), -EBADF);
  EXPECT_EQ(read_pipe(in_.get(), &piece, 1, to.size()), -EBADF);  // the end that writes
}

TEST_F(Pipe, IsStagedInABufferThatGrows) {
  std::byte* staging = nullptr;
  size_t staging_bytes = 0;
  for (size_t second : {50u, 4000u, 10u}) {
    FrameBytes data = numbered(100 + second, static_cast<unsigned>(second));
    fill(data);
    ByteRange ranges[] = {{0, 100, nullptr}, {8192, static_cast<uint32_t>(second), nullptr}};
    ASSERT_EQ(stage_pipe(out_.get(), ranges, &staging, &staging_bytes), 0);
    EXPECT_GE(staging_bytes, data.size());
    EXPECT_EQ(memcmp(ranges[0].near, data.data(), 100), 0);
    EXPECT_EQ(memcmp(ranges[1].near, data.data() + 100, second), 0);
  }
  EXPECT_EQ(staging_bytes, 4100u);  // the largest one
  in_.close();
  ByteRange more = {0, 1, nullptr};
  EXPECT_EQ(stage_pipe(out_.get(), {&more, 1}, &staging, &staging_bytes), -EPIPE);
  near_free(staging, staging_bytes);
}

struct Request {
  Token token = 0;
};

TEST(Slots, ATokenFindsItsOwnRequestOnly) {
  Request requests[kMaxInFlight];
  for (size_t i = 0; i < kMaxInFlight; i++) {
    EXPECT_EQ(free_request(requests), &requests[i]);
    requests[i].token = 5 * kMaxInFlight + i;
  }
  EXPECT_EQ(free_request(requests), nullptr);
  for (size_t i = 0; i < kMaxInFlight; i++) {
    EXPECT_EQ(find_request(requests, 5 * kMaxInFlight + i), &requests[i]);
    EXPECT_EQ(find_request(requests, 4 * kMaxInFlight + i), nullptr);  // the request that was there before
  }
  requests[3].token = 0;
  EXPECT_EQ(free_request(requests), &requests[3]);
  EXPECT_EQ(find_request(requests, 5 * kMaxInFlight + 3), nullptr);
  requests[0].token = 0;
  EXPECT_EQ(find_request(requests, 0), nullptr);  // 0 names no request
}

}  // namespace
}  // namespace farside::transport
