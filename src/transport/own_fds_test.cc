#include "transport/own_fds.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "transport/test_support.h"

namespace farside::transport {
namespace {

int new_fd() { return os::memfd_create("own_fds_test", 0); }

class OwnFdsTest : public testing::Test {
 protected:
  std::unique_ptr<OwnFds> fds_ = std::make_unique<OwnFds>();
};

TEST_F(OwnFdsTest, AdoptedDescriptorsGetHighNumbers) {
  int low = new_fd();
  int high = fds_->adopt(low);
  ASSERT_GE(high, 0);
  EXPECT_GT(high, low);
  EXPECT_FALSE(is_open(low));
  EXPECT_TRUE(is_open(high));
  EXPECT_EQ(os::fcntl(high, F_GETFD, 0), FD_CLOEXEC);
  EXPECT_TRUE(fds_->contains(high));
  EXPECT_FALSE(fds_->contains(low));
  fds_->close(high);
  EXPECT_FALSE(is_open(high));
  EXPECT_FALSE(fds_->contains(high));
}

TEST_F(OwnFdsTest, ContainsOnlyWhatWasAdopted) {
  int fd = fds_->adopt(new_fd());
  for (int other : {-1, -1'000'000, 0, 1, 2, fd - 1, fd + 1, fd - 64, fd + 64, 65535, 65536, 1'000'000, INT32_MAX}) {
    EXPECT_FALSE(fds_->contains(other)) << other;
  }
  fds_->close(fd);
}

TEST_F(OwnFdsTest, DescriptorsThatWereNotAdoptedAreNeverClosed) {
  Fd theirs(new_fd());
  fds_->close(theirs.get());
  EXPECT_TRUE(is_open(theirs.get()));
  auto other = std::make_unique<OwnFds>();
  int fd = other->adopt(new_fd());
  fds_->close(fd);
  fds_->close_all_but(-1);
  EXPECT_TRUE(is_open(fd));
  EXPECT_TRUE(is_open(theirs.get()));
  other->close_all_but(-1);
  EXPECT_FALSE(is_open(fd));
}

TEST_F(OwnFdsTest, ASecondCloseDoesNotCloseAReusedNumber) {
  int fd = fds_->adopt(new_fd());
  fds_->close(fd);
  Fd source(new_fd());
  Fd theirs(os::fcntl(source.get(), F_DUPFD, fd));  // the program reuses the number
  ASSERT_EQ(theirs.get(), fd);
  fds_->close(fd);
  EXPECT_TRUE(is_open(fd));
}

TEST_F(OwnFdsTest, AllButOneAreClosed) {
  std::vector<int> all;
  for (int i = 0; i < 200; i++) all.push_back(fds_->adopt(new_fd()));  // over several words
  for (int fd : all) ASSERT_TRUE(fds_->contains(fd));
  fds_->close_all_but(all[100]);
  for (size_t i = 0; i < all.size(); i++) EXPECT_EQ(is_open(all[i]), i == 100);
  EXPECT_TRUE(fds_->contains(all[100]));
  fds_->close_all_but(-1);
  EXPECT_FALSE(is_open(all[100]));
}

TEST_F(OwnFdsTest, ThreadsMayAdoptAndCloseAtOnce) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; i++) {
        int fd = fds_->adopt(new_fd());
        if (fd < 0 || !fds_->contains(fd) || !is_open(fd)) wrong++;
        fds_->close(fd);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  for (int fd = 0; fd < 65536; fd++) ASSERT_FALSE(fds_->contains(fd));
}

}  // namespace
}  // namespace farside::transport
