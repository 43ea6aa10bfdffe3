#include "server/regions/share.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/os.h"

namespace farside::server {
namespace {

constexpr uint64_t kSlabs = 4;
constexpr uint64_t kWithinNs = 20'000'000'000;

class RegionShareTest : public ::testing::Test {
 protected:
  RegionShareTest() : fd_(memfd_create("region", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(kSlabs * wire::kSlabBytes)), 0);
  }
  ~RegionShareTest() override { close(fd_); }

  int share(uint64_t slab, uint64_t max_slabs, wire::ShareReply* out) {
    return share_.share(settings_, fd_, {slab * wire::kSlabBytes, wire::kSlabBytes}, max_slabs, out);
  }
  // Until it is not "not yet".
  int wait_for(uint64_t slab, uint64_t max_slabs, wire::ShareReply* out) {
    uint64_t begin = now_ns();
    int r;
    while ((r = share(slab, max_slabs, out)) == -EAGAIN && now_ns() - begin < kWithinNs) os::nanosleep_ns(1'000'000);
    return r;
  }

  const int fd_;
  ucx::Settings settings_ = {FARSIDE_UCX_HELPER, "tcp"};
  RegionShare share_;
};

TEST_F(RegionShareTest, NoMoreSlabsThanAllowedAreShared) {
  wire::ShareReply first, second, again;
  EXPECT_EQ(share(0, 2, &first), -EAGAIN);  // its process is being started
  ASSERT_EQ(wait_for(0, 2, &first), 0);
  ASSERT_EQ(wait_for(1, 2, &second), 0);
  EXPECT_EQ(share(2, 2, &again), -ENOSPC);
  EXPECT_EQ(first.epoch, second.epoch);
  EXPECT_NE(first.address, second.address);
  EXPECT_GT(first.key_bytes, 0U);
  EXPECT_EQ(share(0, 2, &again), 0);
  EXPECT_EQ(memcmp(&again, &first, sizeof first), 0);
  share_.unshare(0);
  EXPECT_EQ(share_.slabs(), 1U);
  EXPECT_EQ(wait_for(2, 2, &again), 0);
}

TEST_F(RegionShareTest, ASlabThatIsUnsharedBeforeTheReplyIsNotShared) {
  wire::ShareReply reply;
  ASSERT_EQ(wait_for(0, kSlabs, &reply), 0);
  EXPECT_EQ(share(1, kSlabs, &reply), -EAGAIN);
  share_.unshare(wire::kSlabBytes);
  ASSERT_EQ(wait_for(2, kSlabs, &reply), 0);
  EXPECT_EQ(share_.slabs(), 2U);
}

TEST_F(RegionShareTest, RevokingEndsTheProcess) {
  wire::ShareReply before, after;
  ASSERT_EQ(wait_for(0, kSlabs, &before), 0);
  RegionShare::Remains remains = share_.revoke();
  ASSERT_TRUE(remains);
  EXPECT_FALSE(share_.is_active());
  EXPECT_EQ(share_.slabs(), 0U);
  EXPECT_TRUE(remains->is_running());  // it is waited for when this is destroyed
  remains.reset();
  EXPECT_FALSE(share_.revoke());
  ASSERT_EQ(wait_for(0, kSlabs, &after), 0);
  EXPECT_NE(before.epoch, after.epoch);
  EXPECT_NE(memcmp(before.worker, after.worker, sizeof before.worker), 0);
}

TEST_F(RegionShareTest, AProcessThatFailsIsNotStartedAgainAtOnce) {
  wire::ShareReply reply;
  settings_.transports = "nothing";
  testing::internal::CaptureStderr();
  EXPECT_EQ(wait_for(0, kSlabs, &reply), -EIO);
  settings_.transports = "tcp";
  EXPECT_EQ(share(0, kSlabs, &reply), -EIO);
  EXPECT_FALSE(share_.is_active());
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("internal"), std::string::npos);
}

}  // namespace
}  // namespace farside::server
