// Pages in the overflow file: the file alone, and beside the packer and threads that use the pages.
#include "server/memory/overflow.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "server/memory/packer_fixture.h"

namespace farside::server {
namespace {

constexpr uint64_t kFilePages = 4096;

std::unique_ptr<OverflowFile> new_file(uint64_t pages = kFilePages) {
  auto file = OverflowFile::create(testing::TempDir(), pages * 4096);
  EXPECT_TRUE(file.ok()) << file.status().text();
  return std::move(*file);
}

// Writes behind so many bytes of a file fail; one that begins before is short.
class FailingWrites {
 public:
  explicit FailingWrites(uint64_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FailingWrites() { setrlimit(RLIMIT_FSIZE, &before_); }
  FailingWrites(const FailingWrites&) = delete;
  FailingWrites& operator=(const FailingWrites&) = delete;

 private:
  void (*const handler_)(int) = signal(SIGXFSZ, SIG_IGN);
  rlimit before_ = {};
};

// From now on writes fail, and reads do not.
void break_writes(const OverflowFile& file) {
  int fd = open(fmt::format("/proc/self/fd/{}", file.fd()).c_str(), O_RDONLY);
  ASSERT_GE(dup2(fd, file.fd()), 0);
  close(fd);
}

struct alignas(4096) Pages {
  std::byte bytes[OverflowFile::kMaxRun][4096] = {};
};

TEST(OverflowFile, SlotsAreTakenInRunsAndUsedAgain) {
  auto file = new_file(40);
  OverflowFile::Run first = file->take(100), second = file->take(10), third = file->take(100), none = file->take(1);
  EXPECT_EQ(first.count, OverflowFile::kMaxRun);
  EXPECT_EQ(second.count, 10u);
  EXPECT_EQ(third.count, 14u);
  EXPECT_EQ(none.count, 0u);
  EXPECT_EQ(file->used_bytes(), file->bytes());
  for (uint64_t slot : {3, 4, 7}) file->release(slot);
  OverflowFile::Run again = file->take(16);
  EXPECT_EQ(again.first, 3u);
  EXPECT_EQ(again.count, 2u);
  EXPECT_EQ(file->take(16).first, 7u);
}

TEST(OverflowFile, ALimitOfFilesSizesIsAnError) {
  FailingWrites failing(1 << 20);
  auto file = OverflowFile::create(testing::TempDir(), 2 << 20);
  EXPECT_EQ(file.status().code(), EFBIG);
}

TEST(OverflowFile, NobodyElseCanReadIt) {
  auto file = new_file();
  struct stat info = {};
  ASSERT_EQ(fstat(file->fd(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, file->bytes());
}

TEST(OverflowFile, DamageIsFound) {
  auto file = new_file();
  Pages pages, read;
  for (size_t i = 0; i < 3; i++) memset(pages.bytes[i], static_cast<int>(i + 1), 4096);
  OverflowFile::Run run = file->take(3);
  ASSERT_EQ(file->write(run, pages.bytes[0]), 0);
  ASSERT_EQ(file->read(run.first + 1, read.bytes[0]), 0);
  EXPECT_EQ(memcmp(read.bytes[0], pages.bytes[1], 4096), 0);
  pages.bytes[1][77] ^= std::byte{4};
  ASSERT_EQ(pwrite(file->fd(), pages.bytes[1], 4096, static_cast<off_t>((run.first + 1) * 4096)), 4096);
  EXPECT_EQ(file->read(run.first + 1, read.bytes[0]), -EIO);
  ASSERT_EQ(pwrite(file->fd(), pages.bytes[0], 4096, static_cast<off_t>((run.first + 2) * 4096)), 4096);
  EXPECT_EQ(file->read(run.first + 2, read.bytes[0]), -EIO);  // a page of another slot
  EXPECT_EQ(file->read(run.first, read.bytes[0]), 0);
  ASSERT_EQ(ftruncate(file->fd(), 0), 0);
  EXPECT_EQ(file->read(run.first, read.bytes[0]), -EIO);
  EXPECT_EQ(file->read(kFilePages, read.bytes[0]), -EIO);
}

TEST(OverflowFile, AfterAFailedWriteNoMoreIsTaken) {
  auto file = new_file();
  Pages pages, read;
  pages.bytes[0][0] = std::byte{7};
  OverflowFile::Run good = file->take(16), bad = file->take(16);
  FailingWrites failing(20 * 4096);  // the second one is short
  EXPECT_EQ(file->write(good, pages.bytes[0]), 0);
  EXPECT_FALSE(file->has_failed());
  EXPECT_EQ(file->write(bad, pages.bytes[0]), -EFBIG);
  EXPECT_TRUE(file->has_failed());
  EXPECT_EQ(file->take(1).count, 0u);
  ASSERT_EQ(file->read(good.first, read.bytes[0]), 0);
  EXPECT_EQ(memcmp(read.bytes[0], pages.bytes[0], 4096), 0);
}

// 1 MiB of RAM.
class OverflowTest : public PackerStress {
 protected:
  OverflowTest() : PackerStress(std::make_unique<Overflow>(new_file(), 1 << 20)) {}
  uint64_t in_file() const { return packed_->overflow_pages(); }
  // Until RAM is no longer short.
  void move_all() {
    for (unsigned i = 0; i < 8; i++) pack_all();
  }
  static Page random_page(uint32_t seed) { return page_of(seed, kPage); }
};

TEST_F(OverflowTest, WhatIsColdestLeavesRamWhenItIsNearlyFull) {
  constexpr uint64_t kPages = 600;
  for (uint32_t i = 0; i < 200; i++) write(i, random_page(i));
  grow_stale();
  pack_all();
  EXPECT_EQ(in_file(), 0u);
  for (uint32_t i = 200; i < kPages; i++) write(i, i % 2 ? random_page(i) : page_of(i, 2000));
  grow_stale(1);
  pack_all();
  uint64_t first = in_file();
  EXPECT_GE(first, 200u);
  move_all();
  EXPECT_LT(file_.used_bytes(), 1U << 20);
  EXPECT_EQ(file_.stored_bytes(), kPages * kPage);
  EXPECT_EQ(file_.stored().overflow, in_file() * kPage);
  EXPECT_EQ(overflow_->file()->used_bytes(), in_file() * kPage);
  EXPECT_EQ(file_.missing_bytes(0, (kPages + 1) * kPage), kPage);
  for (uint32_t i = 0; i < kPages; i++) ASSERT_EQ(read(i), i < 200 || i % 2 ? random_page(i) : page_of(i, 2000)) << i;
}

TEST_F(OverflowTest, PagesThatAreReadTwiceOrWrittenReturn) {
  for (uint32_t i = 0; i < 400; i++) write(i, random_page(i));
  grow_stale();
  move_all();
  uint64_t moved = in_file();
  ASSERT_GT(moved, 100u);
  for (int times = 0; times < 2; times++) {
    pack_all();
    EXPECT_EQ(in_file(), moved);
    EXPECT_EQ(read(0), random_page(0));
  }
  pack_all();
  EXPECT_EQ(in_file(), moved - 1);
  write(1, random_page(9));
  Page part = page_of(5, 100);
  ASSERT_EQ(file_.write(2 * kPage + 50, part.data(), 100), 0);
  ASSERT_EQ(file_.punch(3 * kPage, kPage), 0);
  EXPECT_EQ(packed_->packed_pages(), moved - 4);
  pack_all();
  EXPECT_EQ(overflow_->file()->used_bytes(), in_file() * kPage);
  EXPECT_EQ(read(0), random_page(0));
  EXPECT_EQ(read(1), random_page(9));
  Page patched = random_page(2);
  memcpy(&patched[50], part.data(), 100);
  EXPECT_EQ(read(2), patched);
  EXPECT_EQ(read(3), Page(kPage));
  file_ = MemoryFile();
  EXPECT_EQ(overflow_->file()->used_bytes(), 0u);
  EXPECT_EQ(overflow_->ram(), 0u);
}

TEST_F(OverflowTest, WhereRamIsFullAnyPageLeaves) {
  for (uint32_t i = 0; i < 600; i++) write(i, random_page(i));
  move_all();
  EXPECT_LE(file_.used_bytes(), (1U << 20) + kPage);  // with a page of the table
  for (uint32_t i = 0; i < 600; i++) ASSERT_EQ(read(i), random_page(i)) << i;
}

// Warm pages, too: 600 of them have room in RAM then.
TEST_F(OverflowTest, WhereRamIsFullPagesAreCompressedBeforeTheyLeave) {
  for (uint32_t i = 0; i < 600; i++) write(i, page_of(i, 400));
  move_all();
  EXPECT_EQ(in_file(), 0u);
  EXPECT_LT(file_.used_bytes(), 1U << 20);
  for (uint32_t i = 0; i < 600; i++) ASSERT_EQ(read(i), page_of(i, 400)) << i;
}

TEST_F(OverflowTest, ADamagedPageIsAnError) {
  for (uint32_t i = 0; i < 400; i++) write(i, random_page(i));
  grow_stale();
  move_all();
  ASSERT_EQ(ftruncate(overflow_->file()->fd(), 0), 0);
  Page content(kPage);
  EXPECT_EQ(file_.read(0, content.data(), kPage), -EIO);
  EXPECT_EQ(file_.write(10, content.data(), 10), -EIO);
  write(0, random_page(7));  // all of it
  EXPECT_EQ(read(0), random_page(7));
}

TEST_F(OverflowTest, NoPageIsLostWhereWritesFail) {
  for (uint32_t i = 0; i < 600; i++) write(i, random_page(i));
  grow_stale();
  move_all();
  break_writes(*overflow_->file());
  for (uint32_t i = 600; i < 900; i++) write(i, random_page(i));
  move_all();
  EXPECT_TRUE(overflow_->file()->has_failed());
  EXPECT_EQ(overflow_->capacity(), (1 << 20) + in_file() * kPage);
  EXPECT_FALSE(overflow_->is_moving_pages());
  EXPECT_GT(in_file(), 50u);
  EXPECT_EQ(overflow_->file()->used_bytes(), in_file() * kPage);
  for (uint32_t i = 0; i < 900; i++) ASSERT_EQ(read(i), random_page(i)) << i;
}

// Writes fail in the end.
TEST_F(OverflowTest, NoPageIsLostBesideItsUsers) {
  uint64_t most = 0, returned = 0;
  bool broken = false;
  use_all_pages([&](uint64_t uses) {
    if (in_file() < most) returned = 1;
    most = std::max(most, in_file());
    if (uses > kUses * 2 && !std::exchange(broken, true)) break_writes(*overflow_->file());
  });
  EXPECT_TRUE(overflow_->file()->has_failed());
  EXPECT_GT(most, 200u);
  EXPECT_EQ(returned, 1u);
}

}  // namespace
}  // namespace farside::server
