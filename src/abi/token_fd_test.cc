#include "abi/token_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace farside {
namespace {

TEST(TokenFd, IsInheritedAndCannotBeChanged) {
  int fd = make_token_fd("open sesame");
  ASSERT_GE(fd, 0);
  EXPECT_EQ(fcntl(fd, F_GETFD), 0);
  char token[16];
  for (int i = 0; i < 2; i++) {  // each reader has all of it
    ASSERT_EQ(read_token_fd(fd, token, sizeof token), 0);
    EXPECT_STREQ(token, "open sesame");
  }
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  struct stat info;
  ASSERT_EQ(fstat(fd, &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u);
  close(fd);
}

TEST(TokenFd, OtherDescriptorsAreRefused) {
  char token[8];
  EXPECT_EQ(read_token_fd(-1, token, sizeof token), -EBADF);
  int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(read_token_fd(zero, token, sizeof token), -EBADF);
  close(zero);
  int fd = make_token_fd("12345678");
  EXPECT_EQ(read_token_fd(fd, token, sizeof token), -E2BIG);
  close(fd);
}

}  // namespace
}  // namespace farside
