// Transfers of more than is pinned at once, and calls on memory that is not mapped or may not be written.
#include <linux/futex.h>
#include <sys/socket.h>

#include <climits>
#include <thread>

#include "preload/call_test_support.h"
#include "preload/guard/calls/near_pieces.h"

namespace farside::preload {
namespace {

TEST_F(LargeTransferTest, OneCallNeverPinsMuch) {
  EXPECT_EQ(pin_limit(), pager_->frames().limit() * kPageSize / 32);
  EXPECT_LT(pin_limit(), kBytes);  // otherwise nothing is split here
  EXPECT_EQ(pin_limit() % kPageSize, 0u);
}

TEST_F(LargeTransferTest, FilesAreWrittenAndReadWhole) {
  int fd = temporary_file();
  fill();
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_write, fd, far_ + 1, kBytes - 1), static_cast<long>(kBytes - 1));
  std::string got(kBytes - 1, 0);
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 0), static_cast<ssize_t>(kBytes - 1));
  EXPECT_EQ(got, expected(1, kBytes - 1));
  memset(far_, 0, kBytes);
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_pread64, fd, far_, kBytes, 100), static_cast<long>(kBytes - 101));  // up to the file's end
  EXPECT_EQ(std::string(far_, kBytes - 101), expected(101, kBytes - 101));
  EXPECT_EQ(far_[kBytes - 101], 0);
  EXPECT_EQ(call(SYS_pwrite64, fd, far_, kBytes - 101, 5000), static_cast<long>(kBytes - 101));
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 5000), static_cast<ssize_t>(kBytes - 101));
  EXPECT_EQ(got.substr(0, kBytes - 101), expected(101, kBytes - 101));
  os::close(fd);
}

TEST_F(LargeTransferTest, LongVectorsAreWrittenAndReadWhole) {
  constexpr size_t kPieces = 300, kStep = 3400;
  int fd = temporary_file();
  fill();
  std::vector<iovec> pieces;
  size_t total = 0;
  for (size_t i = 0; i < kPieces; i++) {
    size_t bytes = i % 5 == 0 ? 0 : 1 + i * 11;  // some are empty
    pieces.push_back({far_ + i * kStep, bytes});
    total += bytes;
  }
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_writev, fd, pieces.data(), kPieces), static_cast<long>(total));
  std::string all;
  for (size_t i = 0; i < kPieces; i++) all += expected(i * kStep, pieces[i].iov_len);
  std::string got(total, 0);
  ASSERT_EQ(::pread(fd, got.data(), total, 0), static_cast<ssize_t>(total));
  EXPECT_EQ(got, all);
  memset(far_, 0, kBytes);
  EXPECT_EQ(call(SYS_preadv, fd, pieces.data(), kPieces, 0, 0), static_cast<long>(total));
  for (size_t i = 0; i < kPieces; i++) {
    ASSERT_EQ(std::string(far_ + i * kStep, pieces[i].iov_len), expected(i * kStep, pieces[i].iov_len)) << i;
  }
  os::close(fd);
}

TEST_F(LargeTransferTest, VectorsAreWrittenAtTheirOffset) {
  int fd = temporary_file();
  fill();
  iovec pieces[] = {{far_ + 10, kBytes / 2}, {far_, 3}, {far_ + kBytes / 2, kBytes / 2}};
  EXPECT_EQ(call(SYS_pwritev, fd, pieces, 3, 777, 0), static_cast<long>(kBytes + 3));
  std::string got(kBytes + 3, 0);
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 777), static_cast<ssize_t>(kBytes + 3));
  std::string all = expected(10, kBytes / 2) + expected(0, 3) + expected(kBytes / 2, kBytes / 2);
  EXPECT_EQ(got, all);
  ASSERT_EQ(::lseek(fd, 99, SEEK_SET), 99);
  EXPECT_EQ(call(SYS_pwritev2, fd, pieces, 3, -1, -1, 0), static_cast<long>(kBytes + 3));  // at the file's position
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), static_cast<off_t>(99 + kBytes + 3));
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 99), static_cast<ssize_t>(kBytes + 3));
  EXPECT_EQ(got, all);
  os::close(fd);
}

TEST_F(LargeTransferTest, MoreThanMayBeNearIsMoved) {
  size_t bytes = 2 * pager_->frames().limit() * kPageSize;
  char* large =
      reinterpret_cast<char*>(far_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (size_t i = 0; i < bytes; i += kPageSize) large[i] = static_cast<char>(1 + i / kPageSize % 100);
  int fd = temporary_file();
  EXPECT_EQ(call(SYS_write, fd, large, bytes), static_cast<long>(bytes));
  memset(large, 0, bytes);
  iovec pieces[] = {{large, bytes / 2}, {large + bytes / 2, bytes / 2}};
  EXPECT_EQ(call(SYS_preadv, fd, pieces, 2, 0, 0), static_cast<long>(bytes));
  for (size_t i = 0; i < bytes; i += kPageSize) ASSERT_EQ(large[i], static_cast<char>(1 + i / kPageSize % 100)) << i;
  os::close(fd);
  far_munmap(large, bytes);
}

TEST_F(LargeTransferTest, AReadOfAPipeReturnsWhatThereIsAndDoesNotBlock) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, 0), 0);
  ASSERT_GE(::fcntl(fds[1], F_SETPIPE_SZ, 1024 * 1024), 0);
  size_t limit = pin_limit();
  fill();
  ASSERT_EQ(os::write(fds[1], expected(0, limit).data(), limit), static_cast<ssize_t>(limit));
  memset(far_, 0, kBytes);
  EXPECT_EQ(call(SYS_read, fds[0], far_, kBytes), static_cast<long>(limit));  // a second read would block forever
  EXPECT_EQ(std::string(far_, limit), expected(0, limit));
  os::close(fds[0]);
  os::close(fds[1]);
}

TEST_F(LargeTransferTest, AWriteThatWouldBlockReturnsWhatWasWritten) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, O_NONBLOCK), 0);
  long room = ::fcntl(fds[1], F_SETPIPE_SZ, 512 * 1024);
  ASSERT_GT(room, static_cast<long>(pin_limit()));
  ASSERT_LT(room, static_cast<long>(kBytes));
  EXPECT_EQ(call(SYS_write, fds[1], far_, kBytes), room);
  EXPECT_EQ(call(SYS_write, fds[1], far_, kBytes), -EAGAIN);
  os::close(fds[0]);
  EXPECT_EQ(call(SYS_read, fds[0], far_, kBytes), -EBADF);
  os::close(fds[1]);
}

TEST_F(LargeTransferTest, AnErrorAfterTheFirstPartEndsWithTheBytesMoved) {
  int fd = temporary_file();
  far_munmap(far_ + kBytes / 2, kPageSize);
  long moved = call(SYS_write, fd, far_, kBytes);
  EXPECT_GT(moved, 0);
  EXPECT_LE(moved, static_cast<long>(kBytes / 2));  // what is not mapped is not written
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), moved);
  EXPECT_EQ(call(SYS_write, fd, far_ + kBytes / 2, 10), -EFAULT);
  os::close(fd);
}

TEST_F(LargeTransferTest, OnlyMsgWaitallWaitsForAllOfAStream) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  std::thread writer([&] {
    std::string all = expected(0, kBytes);
    for (size_t at = 0; at < all.size();) {
      ssize_t n = os::write(pair[0], all.data() + at, all.size() - at);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  });
  EXPECT_EQ(call(SYS_recvfrom, pair[1], far_, kBytes, MSG_WAITALL, 0, 0), static_cast<long>(kBytes));
  writer.join();
  EXPECT_EQ(std::string(far_, kBytes), expected(0, kBytes));
  // As much as one part takes: without the flag a second one would sleep for ever.
  auto limit = static_cast<ssize_t>(pin_limit());
  int room = static_cast<int>(2 * limit);
  ASSERT_EQ(::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  ASSERT_EQ(::send(pair[0], std::string(pin_limit(), 'x').data(), pin_limit(), MSG_DONTWAIT), limit);
  EXPECT_EQ(call(SYS_recvfrom, pair[1], far_, kBytes, 0, 0, 0), limit);
  ASSERT_EQ(os::write(pair[0], "abc", 3), 3);
  EXPECT_EQ(call(SYS_recvfrom, pair[1], far_, kBytes, 0, 0, 0), 3);
  os::close(pair[0]);
  os::close(pair[1]);
}

TEST_F(LargeTransferTest, AMessageWithTooManyPiecesIsRefused) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  msghdr header = {};
  header.msg_iov = reinterpret_cast<iovec*>(far_);
  header.msg_iovlen = IOV_MAX + 1;
  EXPECT_EQ(call(SYS_sendmsg, pair[0], &header, 0), -EMSGSIZE);
  EXPECT_EQ(call(SYS_recvmsg, pair[0], &header, 0), -EMSGSIZE);
  os::close(pair[0]);
  os::close(pair[1]);
}

// ---- Calls that are not in the table ----

TEST_F(LargeTransferTest, UnknownCallsGetTheirArgumentsPinned) {
  strcpy(far_ + kPageSize - 2, "/dev/null");
  pager_.evict(far_, 2 * kPageSize);
  // fsopen and the like are not described; this number belongs to no call at all.
  EXPECT_EQ(call(100'000, far_, far_ + kPageSize - 2, ~0L, 0, 0, 0), -ENOSYS);
  EXPECT_EQ(call(-5, far_), -ENOSYS);
  EXPECT_TRUE(pager_.is_near(far_));  // it was pinned meanwhile
  EXPECT_EQ(this_guard().pin_count, 0u);
}

TEST_F(LargeTransferTest, UnmappedMemoryGivesTheKernelsError) {
  far_munmap(far_, 4 * kPageSize);
  EXPECT_EQ(call(SYS_openat, AT_FDCWD, far_, O_RDONLY, 0), -EFAULT);
  EXPECT_EQ(call(SYS_uname, far_), -EFAULT);
  EXPECT_EQ(call(SYS_uname, far_ + 4 * kPageSize - 1), -EFAULT);  // its rest is mapped
  EXPECT_EQ(call(SYS_uname, 0), -EFAULT);
  EXPECT_EQ(this_guard().pin_count, 0u);
}

TEST_F(LargeTransferTest, AFutexThatCannotBeReadIsAnError) {
  timespec at_once = {0, 0};
  far_munmap(far_, kPageSize);
  char* mapped = far_ + kPageSize;
  EXPECT_EQ(call(SYS_futex, far_, FUTEX_WAIT_PRIVATE, 0, &at_once, 0, 0), -EFAULT);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAKE_OP_PRIVATE, 1, 1, far_, 0), -EFAULT);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAIT_PRIVATE, 0, 1 /* no address */, 0, 0), -EFAULT);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAIT_PRIVATE, 0, &at_once, 0, 0), -ETIMEDOUT);
  ASSERT_EQ(far_mprotect(mapped, kPageSize, PROT_READ), 0);
  pager_.evict(mapped, kPageSize);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAIT_PRIVATE, 1, &at_once, 0, 0), -EAGAIN);  // waiting only reads
}

TEST_F(LargeTransferTest, ReadOnlyMemoryIsReadAndNotWritten) {
  strcpy(far_, "/dev/null");
  ASSERT_EQ(far_mprotect(far_, kPageSize, PROT_READ), 0);
  pager_.evict(far_, kPageSize);
  long fd = call(SYS_openat, AT_FDCWD, far_, O_RDONLY, 0);
  EXPECT_GE(fd, 0);
  os::close(static_cast<int>(fd));
  EXPECT_EQ(call(SYS_uname, far_), -EFAULT);
  EXPECT_STREQ(far_, "/dev/null");
}

// ---- Calls that are copied through near memory ----

TEST_F(LargeTransferTest, ADatagramIsOneMessageWhateverItsPieces) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  for (size_t count : {32u, 33u, 256u, 1024u}) {
    std::vector<iovec> pieces;
    for (size_t i = 0; i < count; i++) pieces.push_back({far_ + i * 1000, i % 150});
    fill();
    pager_.evict(far_, kBytes);
    auto total = static_cast<long>(total_bytes(pieces.data(), count));
    std::string all, got(kBytes, 0);
    for (size_t i = 0; i < count; i++) all += expected(i * 1000, i % 150);
    EXPECT_EQ(call(SYS_writev, pair[0], pieces.data(), count), total);
    EXPECT_EQ(::recv(pair[1], got.data(), got.size(), MSG_DONTWAIT), total);
    EXPECT_EQ(got.substr(0, all.size()), all);
    EXPECT_EQ(::send(pair[0], all.data(), all.size(), 0), total);
    memset(far_, 0, kBytes);
    pager_.evict(far_, kBytes);
    EXPECT_EQ(call(SYS_readv, pair[1], pieces.data(), count), total);
    for (size_t i = 0; i < count; i++) EXPECT_EQ(std::string(far_ + i * 1000, i % 150), expected(i * 1000, i % 150));
  }
  os::close(pair[0]);
  os::close(pair[1]);
}

TEST_F(LargeTransferTest, WhatIsTooLongAndMayNotBeDividedIsRefused) {
  size_t bytes = kMaxWhole + kPageSize;
  auto* large =
      reinterpret_cast<char*>(far_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  int pair[2], fd = temporary_file("abc");
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  EXPECT_EQ(call(SYS_sendto, pair[0], large, bytes, 0, 0, 0), -EMSGSIZE);
  ASSERT_EQ(::fcntl(fd, F_SETFL, O_APPEND), 0);
  EXPECT_EQ(call(SYS_write, fd, large, bytes), -ENOMEM);
  EXPECT_EQ(::lseek(fd, 0, SEEK_END), 3);
  EXPECT_EQ(call(SYS_write, fd, large, kMaxWhole), static_cast<long>(kMaxWhole));
  for (int f : {fd, pair[0], pair[1]}) os::close(f);
  far_munmap(large, bytes);
}

TEST_F(LargeTransferTest, ACopyEndsWhereTheMemoryDoes) {
  int fd = temporary_file();
  std::string content = expected(0, kBytes);
  ASSERT_EQ(os::write(fd, content.data(), kBytes), static_cast<ssize_t>(kBytes));
  far_munmap(far_ + kBytes - kPageSize, kPageSize);
  iovec pieces[] = {{far_ + 5, 10}, {far_ + 100, kBytes}, {far_, 10}};
  EXPECT_EQ(call(SYS_preadv, fd, pieces, 3, 0, 0), static_cast<long>(10 + kBytes - kPageSize - 100));
  EXPECT_EQ(std::string(far_ + 100, kBytes - kPageSize - 100), expected(10, kBytes - kPageSize - 100));
  EXPECT_EQ(call(SYS_pwritev, fd, pieces, 3, 0, 0), static_cast<long>(10 + kBytes - kPageSize - 100));
  EXPECT_EQ(call(SYS_pread64, fd, far_ + kBytes - kPageSize, kBytes, 0), -EFAULT);
  os::close(fd);
}

TEST_F(LargeTransferTest, NearMemoryOfACallThatWasLeftIsUnmapped) {
  uint64_t sp = stack_pointer();
  alignas(Pins) char storage[sizeof(Pins)];
  auto* jumped = new (storage) Pins(sp - 1000);  // and never destroyed
  std::byte* mapped = jumped->map_near(kPageSize);
  ASSERT_NE(mapped, nullptr);
  *mapped = std::byte{1};
  Pins next(sp);
  EXPECT_EQ(this_guard().pin_count, 0u);
  unsigned char resident;
  EXPECT_EQ(os::call(SYS_mincore, mapped, kPageSize, &resident), -ENOMEM);
}

TEST_F(LargeTransferTest, TheProgramReadsAndWritesItselfByAFile) {
  int fd = os::open("/proc/self/mem", O_RDWR);
  auto position = reinterpret_cast<off_t>(far_);
  std::string got(kBytes, 0);
  fill();
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_pread64, fd, got.data(), kBytes, position), static_cast<long>(kBytes));
  EXPECT_EQ(got, expected(0, kBytes));
  ASSERT_EQ(far_mprotect(far_, kBytes, PROT_READ), 0);
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_lseek, fd, position + 1, SEEK_SET), position + 1);
  EXPECT_EQ(call(SYS_write, fd, got.data(), 3 * kPageSize), static_cast<long>(3 * kPageSize));
  EXPECT_EQ(std::string(far_ + 1, 3 * kPageSize), expected(0, 3 * kPageSize));
  os::close(fd);
}

}  // namespace
}  // namespace farside::preload
