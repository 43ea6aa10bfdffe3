// The mmap family where far memory and other mappings meet: foreign pages in the far space, and far memory outside of
// it.
#include "preload/mappings_test.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace farside::preload {
namespace {

// ---- Foreign pages: what the program maps over far memory ----

class ForeignTest : public MappingsTest {
 protected:
  // A file of 16 pages, each filled with its number.
  void SetUp() override {
    fd_ = os::memfd_create("mappings_test", 0);
    std::vector<char> page(kPageSize);
    for (char i = 0; i < 16; i++) {
      memset(page.data(), 'a' + i, kPageSize);
      ASSERT_EQ(write(fd_, page.data(), kPageSize), static_cast<ssize_t>(kPageSize));
    }
    at_ = map(kMiB);
    memset(at_, 7, kMiB);
  }
  void TearDown() override {
    EXPECT_EQ(far_munmap(at_, kMiB), 0);
    os::close(fd_);
  }
  char* map_file(char* place, size_t pages, int flags = MAP_PRIVATE | MAP_FIXED) {
    return pointer(far_mmap(place, pages * kPageSize, kReadWrite, flags, fd_, 0));
  }
  bool is_foreign(const char* at) { return pager_->table().is_foreign(reinterpret_cast<uint64_t>(at)); }
  int fd_ = -1;
  char* at_ = nullptr;
};

TEST_F(ForeignTest, AFileReplacesFarPagesAndTheirNeighboursStay) {
  char* file = at_ + 8 * kPageSize;
  ASSERT_EQ(map_file(file, 4), file);
  EXPECT_TRUE(is_foreign(file) && is_foreign(file + 3 * kPageSize));
  EXPECT_FALSE(is_foreign(file - 1) || is_foreign(file + 4 * kPageSize));
  EXPECT_EQ(std::string(file, 3), "aaa");
  EXPECT_EQ(file[3 * kPageSize], 'd');
  EXPECT_EQ(file[-1], 7);
  EXPECT_EQ(file[4 * kPageSize], 7);
  pager_.evict(at_, 8 * kPageSize);
  EXPECT_EQ(at_[0], 7);
}

TEST_F(ForeignTest, UnmappedItIsFarSpaceAgain) {
  ASSERT_EQ(map_file(at_, 4), at_);
  EXPECT_EQ(far_munmap(at_, 2 * kPageSize), 0);
  EXPECT_FALSE(is_foreign(at_) || committed(at_, kPageSize));
  EXPECT_TRUE(is_foreign(at_ + 2 * kPageSize));
  EXPECT_EQ(map(2 * kPageSize, kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, at_), at_);
  EXPECT_EQ(at_[0], 0);
  at_[0] = 3;
  pager_.evict(at_, 2 * kPageSize);
  EXPECT_EQ(at_[0], 3);
  // Anonymous memory over the rest of the file.
  EXPECT_EQ(map(4 * kPageSize, kReadWrite, kAnonymous | MAP_FIXED, at_), at_);
  EXPECT_EQ(at_[2 * kPageSize], 0);
  EXPECT_TRUE(committed(at_, 5 * kPageSize));
}

TEST_F(ForeignTest, SharedMemoryAndReservationsMayBeReplaced) {
  char* reserved = map(4 * kMiB, PROT_NONE);
  ASSERT_EQ(map_file(reserved + kMiB, 2, MAP_SHARED | MAP_FIXED), reserved + kMiB);
  reserved[kMiB] = 'x';
  char seen = 0;
  EXPECT_EQ(pread(fd_, &seen, 1, 0), 1);
  EXPECT_EQ(seen, 'x');
  EXPECT_EQ(far_mmap(reserved + kMiB, kPageSize, kReadWrite, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd_, 0), -EEXIST);
  EXPECT_EQ(far_mprotect(reserved, 4 * kMiB, PROT_READ), 0);  // the file among them
  EXPECT_EQ(reserved[kMiB] + reserved[0], 'x');
  EXPECT_EQ(far_munmap(reserved, 4 * kMiB), 0);
}

TEST_F(ForeignTest, AdviceAndProtectionGoToTheKernel) {
  ASSERT_EQ(map_file(at_, 4), at_);
  at_[0] = 'z';
  EXPECT_EQ(far_madvise(at_, 8 * kPageSize, MADV_DONTNEED), 0);
  EXPECT_EQ(at_[0], 'a');            // the file's content again
  EXPECT_EQ(at_[4 * kPageSize], 0);  // far memory is discarded
  EXPECT_EQ(far_mprotect(at_, 4 * kPageSize, PROT_READ), 0);
  EXPECT_EQ(far_mprotect(at_, 8 * kPageSize, kReadWrite), 0);
  at_[0] = at_[5 * kPageSize] = 'y';
}

TEST_F(ForeignTest, AMappingMovesIntoFarSpaceAndOutOfIt) {
  char* near = pointer(far_mmap(nullptr, 4 * kPageSize, kReadWrite, MAP_PRIVATE, fd_, 0));
  ASSERT_FALSE(is_far(near));
  near[0] = 'q';
  int move = MREMAP_MAYMOVE | MREMAP_FIXED;
  EXPECT_EQ(pointer(far_mremap(near, 4 * kPageSize, 4 * kPageSize, move, at_)), at_);
  EXPECT_EQ(at_[0], 'q');
  EXPECT_EQ(pointer(far_mremap(at_, 4 * kPageSize, 2 * kPageSize, 0, nullptr)), at_);  // shrinks
  EXPECT_FALSE(is_foreign(at_ + 2 * kPageSize));
  char* moved = pointer(far_mremap(at_, 2 * kPageSize, 8 * kPageSize, MREMAP_MAYMOVE, nullptr));
  ASSERT_NE(moved, at_);
  EXPECT_EQ(moved[0], 'q');
  EXPECT_EQ(moved[7 * kPageSize], 'h');
  EXPECT_FALSE(is_foreign(at_) || committed(at_, kPageSize));
  far_munmap(moved, 8 * kPageSize);
}

TEST_F(ForeignTest, SystemCallsAcceptRangesOfBothKinds) {
  ASSERT_EQ(map_file(at_ + 2 * kPageSize, 2), at_ + 2 * kPageSize);
  pager_.evict(at_, 8 * kPageSize);
  int fd = os::memfd_create("mappings_test", 0);
  Call call = {SYS_write, {fd, reinterpret_cast<long>(at_), static_cast<long>(6 * kPageSize)}, stack_pointer()};
  EXPECT_EQ(guarded_call(call), static_cast<long>(6 * kPageSize));
  std::vector<char> seen(6 * kPageSize);
  EXPECT_EQ(pread(fd, seen.data(), seen.size(), 0), static_cast<ssize_t>(seen.size()));
  EXPECT_EQ(std::string({seen[0], seen[2 * kPageSize], seen[3 * kPageSize], seen[5 * kPageSize]}), "\7ab\7");
  os::close(fd);
}

// ---- Outside of the far space ----

class OutsideTest : public MappingsTest {
 protected:
  // Addresses that are free.
  char* free_place(size_t bytes) {
    long r = os::mmap(nullptr, bytes + 2 * kMiB, PROT_NONE, kAnonymous, -1, 0);
    os::munmap(pointer(r), bytes + 2 * kMiB);
    return pointer(static_cast<long>(align_up(static_cast<uint64_t>(r), 2 * kMiB)));
  }
  bool in_space(const char* at) { return pager_->table().in_space(reinterpret_cast<uint64_t>(at)); }
  bool is_far_memory(const char* at) {
    return is_far(at) && !pager_->table().is_foreign(reinterpret_cast<uint64_t>(at));
  }
  // Writes a pattern, evicts all of it, and compares.
  void use(char* at, size_t bytes, int seed) {
    for (size_t i = 0; i < bytes; i += kPageSize)
      at[i] = static_cast<char>(i / kPageSize * 7 + static_cast<size_t>(seed));
    pager_.evict(at, bytes);
    for (size_t i = 0; i < bytes; i += kPageSize)
      ASSERT_EQ(at[i], static_cast<char>(i / kPageSize * 7 + static_cast<size_t>(seed))) << i / kPageSize;
  }
};

TEST_F(OutsideTest, AFixedMappingIsFarWhereverItLies) {
  char* place = free_place(6 * kMiB) + 5 * kPageSize;
  EXPECT_EQ(map(6 * kMiB - 64 * kKiB, kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, place), place);
  EXPECT_FALSE(in_space(place));
  EXPECT_TRUE(is_far_memory(place));
  EXPECT_FALSE(is_far_memory(place - kPageSize));
  use(place, 5 * kMiB, 1);
  EXPECT_EQ(far_mmap(place + kMiB, kMiB, kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0), -EEXIST);
  EXPECT_EQ(far_munmap(place, 6 * kMiB), 0);
  EXPECT_FALSE(is_far_memory(place));
  EXPECT_EQ(map(kMiB, kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, place), place);  // the same page numbers again
  use(place, kMiB, 2);
  EXPECT_EQ(far_munmap(place, kMiB), 0);
}

TEST_F(OutsideTest, AHintIsTaken) {
  char* place = free_place(kMiB);
  char* at = map(kMiB, kReadWrite, kAnonymous, place);
  EXPECT_EQ(at, place);
  EXPECT_TRUE(is_far_memory(at));
  char* other = map(kMiB, kReadWrite, kAnonymous, place);  // taken now
  EXPECT_NE(other, place);
  EXPECT_TRUE(is_far_memory(other));
  far_munmap(at, kMiB);
  far_munmap(other, kMiB);
}

TEST_F(OutsideTest, AReservationLargerThanTheFarSpaceIsFarWhereItIsCommitted) {
  constexpr size_t kBytes = 4096 * kGiB;
  char* at = map(kBytes, PROT_NONE, kAnonymous | MAP_NORESERVE);
  EXPECT_FALSE(is_far(at));
  char* middle = at + kBytes / 2;
  EXPECT_EQ(far_mprotect(middle, 4 * kMiB, kReadWrite), 0);
  EXPECT_TRUE(is_far_memory(middle) && is_far_memory(middle + 4 * kMiB - 1));
  EXPECT_FALSE(is_far_memory(middle + 4 * kMiB));
  use(middle, 4 * kMiB, 3);
  // The JVM commits by mapping, and uncommits by mapping a reservation.
  char* next = middle + 4 * kMiB;
  EXPECT_EQ(map(kMiB, kReadWrite, kAnonymous | MAP_FIXED, next), next);
  use(next, kMiB, 4);
  EXPECT_EQ(map(4 * kMiB, PROT_NONE, kAnonymous | MAP_FIXED | MAP_NORESERVE, middle), middle);
  EXPECT_FALSE(is_far_memory(middle));
  EXPECT_EQ(far_mprotect(middle, kMiB, kReadWrite), 0);
  EXPECT_EQ(middle[0], 0);
  EXPECT_EQ(static_cast<signed char>(next[kPageSize]), 11);
  EXPECT_EQ(far_munmap(at, kBytes), 0);
  EXPECT_FALSE(is_far_memory(next));
}

TEST_F(OutsideTest, FilesMayReplaceItAndItMoves) {
  char* place = free_place(4 * kMiB);
  ASSERT_EQ(map(4 * kMiB, kReadWrite, kAnonymous | MAP_FIXED, place), place);
  place[0] = 1;
  place[kMiB] = 2;
  int fd = os::memfd_create("mappings_test", 0);
  ASSERT_EQ(os::ftruncate(fd, kMiB), 0);
  EXPECT_EQ(pointer(far_mmap(place, kPageSize, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0)), place);
  EXPECT_EQ(place[0], 0);
  EXPECT_FALSE(is_far_memory(place));
  EXPECT_EQ(far_mprotect(place, 2 * kMiB, kReadWrite), 0);
  EXPECT_EQ(far_madvise(place, kMiB, MADV_DONTNEED), 0);
  EXPECT_EQ(place[kMiB], 2);
  long r = far_mremap(place + kMiB, 2 * kMiB, 6 * kMiB, MREMAP_MAYMOVE, nullptr);
  ASSERT_FALSE(os::is_error(r));
  EXPECT_EQ(pointer(r)[0], 2);
  EXPECT_EQ(far_munmap(pointer(r), 6 * kMiB), 0);
  EXPECT_EQ(far_munmap(place, 4 * kMiB), 0);
  os::close(fd);
}

TEST_F(OutsideTest, WherePageNumbersRunOutItIsNear) {
  constexpr size_t kMost = kTestSpace / 2 + 64 * kMiB;  // half of the numbers may be lent
  char* place = free_place(kMost);
  EXPECT_EQ(map(kMost, kReadWrite, kAnonymous | MAP_FIXED | MAP_NORESERVE, place), place);
  EXPECT_FALSE(is_far_memory(place));
  place[0] = place[kMost - 1] = 1;
  EXPECT_EQ(far_munmap(place, kMost), 0);
  long mapped = far_mmap(place, kMost, kReadWrite, kAnonymous, -1, 0);  // a hint: far memory elsewhere is better
  if (mapped == -ENOMEM) GTEST_SKIP() << "windows that other tests have lent divide the space";
  char* elsewhere = pointer(mapped);
  EXPECT_NE(elsewhere, place);
  EXPECT_TRUE(is_far_memory(elsewhere) && in_space(elsewhere));
  EXPECT_EQ(far_munmap(elsewhere, kMost), 0);
}

TEST_F(OutsideTest, WrongCallsChangeNothing) {
  char* far = map(kMiB);
  memset(far, 7, kMiB);
  char* near = pointer(os::mmap(nullptr, kMiB, kReadWrite, kAnonymous, -1, 0));
  EXPECT_EQ(far_mremap(near, kMiB, kMiB, MREMAP_FIXED, far), -EINVAL);
  EXPECT_EQ(far_mremap(near, kMiB, kMiB, MREMAP_FIXED | MREMAP_MAYMOVE, far + 1), -EINVAL);
  EXPECT_EQ(far_mremap(near, kMiB, 0, MREMAP_FIXED | MREMAP_MAYMOVE, far), -EINVAL);
  EXPECT_EQ(far[0] + far[kMiB - 1], 14);
  os::munmap(near, kMiB);
  far_munmap(far, kMiB);
  char* place = free_place(4 * kMiB);
  ASSERT_EQ(map(kMiB, kReadWrite, kAnonymous | MAP_FIXED, place + kMiB), place + kMiB);
  place[kMiB] = 5;
  EXPECT_FALSE(committed(place + kMiB, 1024 * kMiB));  // farther than there are page numbers
  EXPECT_EQ(far_madvise(place, 2 * kMiB, MADV_DONTNEED), -ENOMEM);
  EXPECT_EQ(place[kMiB], 0);  // what is mapped has been advised
  EXPECT_EQ(far_munmap(place + kMiB, kMiB), 0);
}

TEST_F(OutsideTest, SystemCallsPinIt) {
  char* place = free_place(8 * kMiB) + kMiB;
  ASSERT_EQ(map(5 * kMiB, kReadWrite, kAnonymous | MAP_FIXED, place), place);
  use(place, 5 * kMiB, 5);
  pager_.evict(place, 5 * kMiB);
  int fd = os::memfd_create("mappings_test", 0);
  Call call = {SYS_write, {fd, reinterpret_cast<long>(place), static_cast<long>(5 * kMiB)}, stack_pointer()};
  EXPECT_EQ(guarded_call(call), static_cast<long>(5 * kMiB));
  os::close(fd);
  EXPECT_EQ(far_munmap(place, 5 * kMiB), 0);
}

}  // namespace
}  // namespace farside::preload
