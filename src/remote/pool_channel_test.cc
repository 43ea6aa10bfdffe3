// Tests of a channel to several servers. tests/conformance tests it with real servers.
#include "remote/pool_channel.h"

#include <algorithm>
#include <bit>

#include "remote/pool_fixture.h"

namespace farside::remote {
namespace {

constexpr uint64_t kBorder = kSlabBytes;

TEST_F(Pool, RequestsAreSplitBetweenServers) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  ASSERT_NE(store_->servers().holders(0), store_->servers().holders(1));
  auto channel = open();
  FrameBytes data = numbered(10'000), back(10'000);
  ASSERT_EQ(write(*channel, kBorder - 3000, data), 0);
  size_t first = static_cast<size_t>(std::countr_zero(store_->servers().holders(0)));
  EXPECT_TRUE(has(first, kBorder - 3000, FrameBytes(data.begin(), data.begin() + 3000)));
  EXPECT_TRUE(has(first, kBorder, FrameBytes(7000)));  // no bytes of the other server
  EXPECT_TRUE(has(1 - first, kBorder - 3000, FrameBytes(3000)));
  EXPECT_TRUE(has(1 - first, kBorder, FrameBytes(data.begin() + 3000, data.end())));
  ASSERT_EQ(read(*channel, kBorder - 3000, &back), 0);
  EXPECT_EQ(back, data);
  ASSERT_EQ(discard(*channel, kBorder - 4096, 8192), 0);
  EXPECT_TRUE(has(first, kBorder - 4096, FrameBytes(4096)));
  EXPECT_TRUE(has(1 - first, kBorder, FrameBytes(4096)));
}

TEST_F(Pool, EveryCopyIsWritten) {
  serve({8, 8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 5000, numbered(100)), 0);
  for (unsigned s = 0; s < 3; s++)
    EXPECT_EQ(has(s, 5000, numbered(100)), (store_->servers().holders(0) & only(s)) != 0);
}

TEST_F(Pool, APipeIsReadOnceForAllCopies) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  auto channel = open();
  int fds[2];
  ASSERT_EQ(os::pipe(fds, 0), 0);
  transport::Fd out(fds[0]), in(fds[1]);
  FrameBytes data = numbered(1000);
  ASSERT_EQ(os::write(in.get(), data.data(), data.size()), 1000);
  ByteRange ranges[] = {{kBorder - 300, 600, nullptr}, {100, 350, nullptr}};
  Token token;
  ASSERT_EQ(channel->submit_write(ranges, out.get(), &token), 0);
  ASSERT_EQ(channel->wait(token, kPatience), 0);
  for (size_t s = 0; s < 2; s++) {
    EXPECT_TRUE(has(s, kBorder - 300, FrameBytes(data.begin(), data.begin() + 600)));
    EXPECT_TRUE(has(s, 100, FrameBytes(data.begin() + 600, data.begin() + 950)));
  }
  std::byte rest[100];
  EXPECT_EQ(os::read(out.get(), rest, sizeof rest), 50);
}

TEST_F(Pool, UnplacedSlabsReadAsZeroWithoutARequest) {
  serve({8, 8}, true);
  connect();
  auto channel = open();
  FrameBytes back(500, std::byte{0xee});
  ASSERT_EQ(read(*channel, kBorder - 100, &back), 0);
  EXPECT_EQ(back, FrameBytes(500));
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  ASSERT_EQ(write(*channel, kBorder - 100, numbered(100)), 0);
  back.assign(500, std::byte{0xee});
  ASSERT_EQ(read(*channel, kBorder - 100, &back), 0);  // half of it is placed
  FrameBytes expected = numbered(100);
  expected.resize(500);
  EXPECT_EQ(back, expected);
  EXPECT_EQ(servers_[0]->reads + servers_[1]->reads, 1u);
  EXPECT_EQ(discard(*channel, 5 * kSlabBytes, 4096), 0);
}

TEST_F(Pool, AWriteWithoutAPlaceIsRefused) {
  serve({8, 8});
  connect();
  auto channel = open();
  EXPECT_EQ(write(*channel, 0, numbered(10)), -ENOSPC);
  ASSERT_TRUE(store_->grow(kSlabBytes).ok());
  EXPECT_EQ(write(*channel, kBorder - 5, numbered(10)), -ENOSPC);  // one slab only
  EXPECT_EQ(write(*channel, 0, numbered(10)), 0);
}

TEST_F(Pool, RequestsOverTheLimitsAreRefused) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, kTestRegion).ok());
  auto channel = open();
  std::byte b[16];
  Token tokens[transport::kMaxInFlight], token;
  for (ByteRange bad :
       {ByteRange{kTestRegion, 1, b}, ByteRange{kTestRegion - 1, 2, b}, ByteRange{~uint64_t{0}, 1, b}}) {
    EXPECT_EQ(channel->submit_read({&bad, 1}, &token), -ERANGE);
    EXPECT_EQ(channel->submit_write({&bad, 1}, -1, &token), -ERANGE);
    EXPECT_EQ(channel->submit_discard({&bad, 1}, &token), -ERANGE);
  }
  ByteRange one = {0, 1, b};
  for (Token& t : tokens) ASSERT_EQ(channel->submit_read({&one, 1}, &t), 0);
  EXPECT_EQ(channel->submit_read({&one, 1}, &token), -EAGAIN);
  for (Token t : tokens) EXPECT_EQ(channel->wait(t, kPatience), 0);
  EXPECT_EQ(channel->poll(tokens[0]), -EINVAL);
  EXPECT_EQ(channel->submit_read({&one, 1}, &token), 0);
}

TEST_F(Pool, ReadsUseTheRemainingCopy) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 0, numbered(100)), 0);
  store_->servers().lose(store_->servers().reader_of(0, store_->servers().holders(0)), "the test says so");
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100));
}

TEST_F(Pool, AReadGoesToOneCopy) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, 4 * kSlabBytes).ok());
  auto channel = open();
  FrameBytes back(100);
  for (uint64_t slab = 0; slab < 4; slab++) ASSERT_EQ(read(*channel, slab * kSlabBytes, &back), 0);
  EXPECT_EQ(servers_[0]->reads, 2u);
  EXPECT_EQ(servers_[1]->reads, 2u);
}

TEST_F(Pool, AReadInPlaceNeedsNoBuffer) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ByteRange s = {4096, 4096, nullptr};
  Token token;
  ASSERT_EQ(channel->submit_read({&s, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), 0);
}

TEST_F(Pool, ASlabWithoutAServerIsLost) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  auto channel = open();
  auto gone = static_cast<unsigned>(std::countr_zero(store_->servers().holders(0)));
  store_->servers().lose(gone, "the test says so");
  FrameBytes back(10);
  EXPECT_EQ(read(*channel, 0, &back), -ECONNRESET);
  EXPECT_EQ(write(*channel, 0, back), -ECONNRESET);
  EXPECT_EQ(read(*channel, kBorder - 5, &back), -ECONNRESET);  // half of it
  EXPECT_EQ(discard(*channel, 0, 4096), 0);                    // nothing is stored
  EXPECT_EQ(read(*channel, kBorder, &back), 0);
}

TEST_F(Pool, AReplicaThatRefusesAWriteIsLostAndTheOtherIsUsed) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  servers_[0]->refuse_writes = ENOSPC;
  EXPECT_EQ(write(*channel, 0, numbered(100)), 0);
  EXPECT_EQ(store_->servers().lost(), only(0));  // it has missed a write
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100));
  servers_[1]->refuse_writes = ENOSPC;
  EXPECT_EQ(write(*channel, 0, numbered(100)), -ENOSPC);  // no server has stored it
}

TEST_F(Pool, WithoutCopiesARefusalIsReturned) {
  serve({8, 8}, true);
  connect();
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  for (auto& server : servers_) server->refuse_writes = ENOSPC;
  EXPECT_EQ(write(*channel, 0, numbered(100)), -ENOSPC);
  EXPECT_EQ(store_->servers().lost(), 0u);
  for (auto& server : servers_) server->refuse_writes = 0;
  EXPECT_EQ(write(*channel, 0, numbered(100)), 0);
}

TEST_F(Pool, AReadThatOneCopyRefusesUsesTheOther) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 0, numbered(100)), 0);
  unsigned reader = store_->servers().reader_of(0, store_->servers().holders(0));
  servers_[reader]->refuse_reads = EIO;
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100));
  EXPECT_EQ(store_->servers().lost(), only(reader));
}

TEST_F(Pool, ServersThatEndAreLostOneByOne) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 0, numbered(100)), 0);
  servers_[0]->stop();
  EXPECT_EQ(write(*channel, 0, numbered(100, 1)), 0);
  EXPECT_EQ(store_->servers().lost(), only(0));
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100, 1));
  servers_[1]->stop();
  EXPECT_EQ(read(*channel, 0, &back), -ECONNRESET);
  EXPECT_EQ(write(*channel, 0, back), -ECONNRESET);
}

}  // namespace
}  // namespace farside::remote
