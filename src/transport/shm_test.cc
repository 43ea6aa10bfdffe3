// Tests of the shared memory channel. A memory file of this process replaces the server.
#include "transport/shm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/bits.h"
#include "transport/test_support.h"

namespace farside::transport {
namespace {

constexpr uint64_t kBytes = 64 * kPageSize;

class Shm : public testing::Test {
 protected:
  Shm() : file_(os::memfd_create("shm_test", 0)) {
    EXPECT_EQ(os::ftruncate(file_.get(), kBytes + sizeof(wire::RegionTrailer)), 0);
    long at =
        os::mmap(nullptr, kBytes + sizeof(wire::RegionTrailer), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    server_ = reinterpret_cast<std::byte*>(at);
    EXPECT_EQ(set_unix_path(&unreachable_.endpoint, "/nonexistent/socket", 19), 0);
    unreachable_.fds = fds_.get();
    map({});
  }
  ~Shm() override {
    channel_.reset();
    region_.reset();
    os::munmap(server_, kBytes + sizeof(wire::RegionTrailer));
  }
  void map(ShmRegion::Link link) {
    Status status;
    channel_.reset();
    region_ = std::unique_ptr<ShmRegion>(ShmRegion::map({file_.get()}, kBytes, link, &status));
    ASSERT_TRUE(region_) << status.text();
    channel_.reset(new ShmChannel(region_.get(), &unreachable_));
  }
  void set_overlays(uint64_t count) { reinterpret_cast<wire::RegionTrailer*>(server_ + kBytes)->live_overlays = count; }

  Fd file_;
  std::byte* server_ = nullptr;  // the file as the server sees it
  std::unique_ptr<OwnFds> fds_ = std::make_unique<OwnFds>();
  Dialer unreachable_;
  std::unique_ptr<ShmRegion> region_;
  std::unique_ptr<ShmChannel> channel_;
};

TEST_F(Shm, MovesBytesWithoutTheServer) {
  FrameBytes data = numbered(5000), back(5000);
  std::vector<ByteRange> write = {{kPageSize - 100, 3000, data.data()}, {kBytes - 2000, 2000, data.data() + 3000}};
  Token token;
  ASSERT_EQ(channel_->submit_write(write, -1, &token), 0);
  EXPECT_EQ(channel_->poll(token), 1);
  EXPECT_EQ(channel_->poll(token), -EINVAL);
  EXPECT_EQ(memcmp(server_ + kPageSize - 100, data.data(), 3000), 0);
  EXPECT_EQ(memcmp(server_ + kBytes - 2000, data.data() + 3000, 2000), 0);
  std::vector<ByteRange> read = {{kBytes - 2000, 2000, back.data() + 3000}, {kPageSize - 100, 3000, back.data()}};
  ASSERT_EQ(channel_->submit_read(read, &token), 0);
  EXPECT_EQ(channel_->wait(token, kPatience), 0);
  EXPECT_EQ(back, data);
}

// "dd" in VmFlags of /proc/self/smaps, for the mapping that contains the address.
bool is_left_out_of_dumps(const void* address) {
  std::ifstream areas("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(areas, line);) {
    uint64_t begin, end;
    if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      auto at = reinterpret_cast<uint64_t>(address);
      inside = begin <= at && at < end;
    }
    if (inside && line.starts_with("VmFlags:")) return line.find(" dd") != std::string::npos;
  }
  return false;
}

TEST_F(Shm, CoreDumpsDoNotHaveTheRegion) {
  EXPECT_TRUE(is_left_out_of_dumps(channel_->mapping().base));
  EXPECT_FALSE(is_left_out_of_dumps(server_));
}

TEST_F(Shm, PipesAreReadStraightIntoPlace) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, 0), 0);
  Fd out(fds[0]), in(fds[1]);
  FrameBytes data = numbered(300);
  ASSERT_EQ(os::write(in.get(), data.data(), 300), 300);
  std::vector<ByteRange> write = {{100, 200, nullptr}, {kPageSize, 90, nullptr}};
  Token token;
  ASSERT_EQ(channel_->submit_write(write, out.get(), &token), 0);
  EXPECT_EQ(memcmp(server_ + 100, data.data(), 200), 0);
  EXPECT_EQ(memcmp(server_ + kPageSize, data.data() + 200, 90), 0);
  in.close();
  EXPECT_EQ(channel_->submit_write(write, out.get(), &token), -EPIPE);  // 10 bytes are left
}

TEST_F(Shm, DiscardedBytesAreZero) {
  memset(server_, 7, kBytes);
  ByteRange discard = {kPageSize, 2 * kPageSize, nullptr};
  Token token;
  ASSERT_EQ(channel_->submit_discard({&discard, 1}, &token), 0);
  EXPECT_EQ(channel_->wait(token, kPatience), 0);
  EXPECT_EQ(server_[kPageSize - 1], std::byte{7});
  EXPECT_TRUE(std::all_of(server_ + kPageSize, server_ + 3 * kPageSize, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(server_[3 * kPageSize], std::byte{7});
}

TEST_F(Shm, NothingBeyondTheRegionIsAccessed) {
  FrameBytes data(2 * kPageSize);
  Token token;
  std::vector<ByteRange> inside = {{kBytes - kPageSize, kPageSize, data.data()}};
  EXPECT_EQ(channel_->submit_read(inside, &token), 0);
  for (ByteRange bad : {ByteRange{kBytes - kPageSize + 1, kPageSize, data.data()}, ByteRange{kBytes, 1, data.data()},
                        ByteRange{~uint64_t{0}, 1, data.data()}, ByteRange{~uint64_t{0} - 10, 100, data.data()}}) {
    std::vector<ByteRange> list = {{0, 1, data.data()}, bad};
    EXPECT_EQ(channel_->submit_read(list, &token), -ERANGE) << bad.far;
    EXPECT_EQ(channel_->submit_write(list, -1, &token), -ERANGE) << bad.far;
    EXPECT_EQ(channel_->submit_discard(list, &token), -ERANGE) << bad.far;
  }
  ByteRange huge = {0, UINT32_MAX, nullptr};
  EXPECT_EQ(channel_->submit_discard({&huge, 1}, &token), -ERANGE);
}

TEST_F(Shm, OneRequestTooManyIsRefused) {
  std::byte b;
  ByteRange s = {0, 1, &b};
  Token tokens[kMaxInFlight], more;
  for (Token& token : tokens) ASSERT_EQ(channel_->submit_read({&s, 1}, &token), 0);
  EXPECT_EQ(channel_->submit_read({&s, 1}, &more), -EAGAIN);
  EXPECT_EQ(channel_->poll(tokens[7]), 1);
  EXPECT_EQ(channel_->submit_read({&s, 1}, &more), 0);
  EXPECT_EQ(std::count(tokens, tokens + kMaxInFlight, more), 0);
}

TEST_F(Shm, IsReadInPlaceAtAnyTime) {
  server_[5] = std::byte{42};
  Mapping mapping = channel_->mapping();
  EXPECT_TRUE(mapping.immediate);
  ASSERT_NE(mapping.base, nullptr);
  EXPECT_EQ(mapping.base[5], std::byte{42});
  server_[kBytes - 1] = std::byte{43};
  EXPECT_EQ(mapping.base[kBytes - 1], std::byte{43});
  ByteRange in_place = {5, 1, nullptr};  // needs no buffer
  Token token;
  ASSERT_EQ(channel_->submit_read({&in_place, 1}, &token), 0);
  EXPECT_EQ(channel_->poll(token), 1);
}

TEST_F(Shm, AddedLatencyHoldsCompletionsBack) {
  map({1e6, 0});  // a second
  EXPECT_TRUE(region_->is_delayed());
  EXPECT_FALSE(channel_->mapping().immediate);  // not without a read first
  EXPECT_NE(channel_->mapping().base, nullptr);
  std::byte b;
  ByteRange s = {0, 1, &b};
  Token token;
  ASSERT_EQ(channel_->submit_read({&s, 1}, &token), 0);
  EXPECT_EQ(channel_->poll(token), 0);
  EXPECT_EQ(channel_->wait(token, 1000), -ETIMEDOUT);
  EXPECT_EQ(channel_->poll(token), 0);  // still in flight
}

TEST_F(Shm, TransfersQueueForTheLink) {
  map({0, 1});
  uint64_t small = region_->completion_tick(1000), large = region_->completion_tick(1'000'000);
  auto ticks_for = [](uint64_t bytes) { return static_cast<double>(bytes) * 8 / 1000 * ticks_per_us(); };
  EXPECT_GE(static_cast<double>(large - small), ticks_for(1'000'000) - 1);
  EXPECT_GE(static_cast<double>(region_->completion_tick(2000) - large), ticks_for(2000) - 1);
  map({0, 0});
  EXPECT_EQ(region_->completion_tick(1'000'000), 0u);
  EXPECT_FALSE(region_->is_delayed());
}

TEST_F(Shm, WritesNeedTheServerWhileSnapshotsExist) {
  FrameBytes data = numbered(8), back(8);
  ByteRange write = {0, 8, data.data()}, read = {0, 8, back.data()};
  Token token;
  set_overlays(1);
  EXPECT_EQ(channel_->submit_write({&write, 1}, -1, &token), -ECONNRESET);  // there is no server
  EXPECT_EQ(channel_->submit_discard({&write, 1}, &token), -ECONNRESET);
  EXPECT_EQ(server_[1], std::byte{0});
  ASSERT_EQ(channel_->submit_read({&read, 1}, &token), 0);  // reads do not
  EXPECT_EQ(channel_->poll(token), 1);
  set_overlays(0);
  ASSERT_EQ(channel_->submit_write({&write, 1}, -1, &token), 0);
  EXPECT_EQ(channel_->poll(token), 1);
  EXPECT_EQ(memcmp(server_, data.data(), 8), 0);
}

TEST_F(Shm, AFileThatCannotBeMappedIsReported) {
  Status status;
  EXPECT_EQ(ShmRegion::map({-1}, kBytes, {}, &status), nullptr);
  EXPECT_EQ(status.code(), EBADF);
}

}  // namespace
}  // namespace farside::transport
