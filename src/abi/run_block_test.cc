#include "abi/run_block.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace farside {
namespace {

Options some_options() {
  Options options;
  EXPECT_TRUE(set_option(&options, "--local", "64M").ok());
  EXPECT_TRUE(set_option(&options, "--tune", "policy=lru,space=128M").ok());
  EXPECT_TRUE(copy_text("open sesame", options.token, "").ok());
  return options;
}

int result_of_reading(const RunBlock& block, size_t size = sizeof(RunBlock)) {
  int fd = memfd_create("test", MFD_CLOEXEC);
  EXPECT_EQ(write(fd, &block, size), static_cast<ssize_t>(size));
  Options options;
  int r = read_run_fd(fd, &options);
  EXPECT_TRUE(r == 0 || options == Options());
  close(fd);
  return r;
}

TEST(RunBlock, IsInheritedAndCannotBeChanged) {
  int fd = make_run_fd(some_options());
  ASSERT_GE(fd, 0);
  EXPECT_EQ(fcntl(fd, F_GETFD), 0);
  for (int i = 0; i < 2; i++) {  // each reader has all of it
    Options options;
    ASSERT_EQ(read_run_fd(fd, &options), 0);
    EXPECT_EQ(options, some_options());
  }
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  struct stat info;
  ASSERT_EQ(fstat(fd, &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u);
  close(fd);
}

TEST(RunBlock, OtherDescriptorsAreRefused) {
  Options options;
  EXPECT_EQ(read_run_fd(-1, &options), -EBADF);
  int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(read_run_fd(zero, &options), -EBADF);
  close(zero);
  RunBlock other;
  other.magic++;
  EXPECT_EQ(result_of_reading(other), -EBADF);
  EXPECT_EQ(result_of_reading(RunBlock(), 4), -EBADF);
}

TEST(RunBlock, BlocksOfOtherVersionsAreRefused) {
  EXPECT_EQ(result_of_reading(RunBlock()), 0);
  RunBlock newer, larger;
  newer.version++;
  EXPECT_EQ(result_of_reading(newer), -EPROTO);
  larger.bytes += 8;
  EXPECT_EQ(result_of_reading(larger), -EPROTO);
  EXPECT_EQ(result_of_reading(RunBlock(), sizeof(RunBlock) - 1), -EPROTO);
}

TEST(RunBlock, TheEnvironmentNamesTheDescriptor) {
  auto fd_in = [](const char* entry) {
    const char* environment[] = {"FARSIDE_RUN=4", entry, nullptr};
    return run_fd_in(environment);
  };
  EXPECT_EQ(fd_in("FARSIDE_RUN_FD=1021"), 1021);
  for (const char* bad : {"FARSIDE_RUN_FD=", "FARSIDE_RUN_FD=3x", "FARSIDE_RUN_FD=x", "FARSIDE_RUN_FDS=3"})
    EXPECT_EQ(fd_in(bad), -1) << bad;
  EXPECT_EQ(run_fd_in(nullptr), -1);
}

// A random token may begin with the number of a descriptor.
TEST(FarFileFds, AreThoseOfACompleteTokenOnly) {
  for (const char* token : {"", "1", "1a2b", "2,", "3,4x", "5,-6", "-7,8", "9;10"}) {
    FarFileFds fds;
    EXPECT_FALSE(parse_far_file_fds(token, &fds)) << token;
    EXPECT_EQ(fds.file, -1) << token;
    EXPECT_EQ(fds.space, -1) << token;
  }
  FarFileFds fds;
  EXPECT_TRUE(parse_far_file_fds("1019,1020", &fds));
  EXPECT_EQ(fds.file, 1019);
  EXPECT_EQ(fds.space, 1020);
}

}  // namespace
}  // namespace farside
