// Tests of the mmap family on far space: which mappings are far, and the effect of each call on ranges of them.
#include "preload/heap/mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "preload/test_support.h"

namespace farside::preload {
namespace {

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr size_t kMinFar = 64 * kKiB;

char* pointer(long r) { return reinterpret_cast<char*>(r); }

class MappingsTest : public testing::Test {
 protected:
  char* map(size_t bytes, int protection = kReadWrite, int flags = kAnonymous, void* place = nullptr) {
    long r = far_mmap(place, bytes, protection, flags, -1, 0);
    EXPECT_FALSE(os::is_error(r)) << r;
    return pointer(r);
  }
  bool committed(const char* at, size_t bytes) {
    return pager_->is_committed(reinterpret_cast<const std::byte*>(at), bytes);
  }
  GuardedPager& pager_ = GuardedPager::get();
};

TEST_F(MappingsTest, LargePrivateAnonymousMappingsAreFar) {
  auto goes_far = [&](size_t bytes, int flags, int protection = kReadWrite) {
    char* at = map(bytes, protection, flags);
    bool far = is_far(at);
    far_munmap(at, bytes);
    return far;
  };
  EXPECT_TRUE(goes_far(kMinFar, kAnonymous));
  EXPECT_FALSE(goes_far(kMinFar - 1, kAnonymous));
  EXPECT_TRUE(goes_far(10 * kMiB, kAnonymous | MAP_NORESERVE));
  EXPECT_TRUE(goes_far(kMiB, kAnonymous, PROT_NONE));  // a reservation: it may be used later
  for (int flag : {MAP_STACK, MAP_GROWSDOWN, MAP_32BIT}) EXPECT_FALSE(goes_far(kMiB, kAnonymous | flag)) << flag;
  EXPECT_FALSE(goes_far(kMiB, MAP_SHARED | MAP_ANONYMOUS));
}

TEST_F(MappingsTest, FilesStayNear) {
  int fd = os::memfd_create("mappings_test", 0);
  ASSERT_EQ(os::ftruncate(fd, kMiB), 0);
  long at = far_mmap(nullptr, kMiB, PROT_READ, MAP_PRIVATE, fd, 0);
  ASSERT_FALSE(os::is_error(at));
  EXPECT_FALSE(is_far(pointer(at)));
  EXPECT_EQ(far_munmap(pointer(at), kMiB), 0);
  os::close(fd);
}

TEST_F(MappingsTest, SizesAreRoundedUpAndPagesAreZero) {
  char* at = map(kMiB + 1);
  EXPECT_TRUE(committed(at, kMiB + kPageSize));
  EXPECT_FALSE(committed(at, kMiB + 2 * kPageSize));
  for (size_t i = 0; i < kMiB + kPageSize; i += 1000) ASSERT_EQ(at[i], 0);
  EXPECT_EQ(far_munmap(at, kMiB + 1), 0);
  EXPECT_FALSE(committed(at, kPageSize));
}

TEST_F(MappingsTest, AMappingIsUnmappedInParts) {
  char* at = map(kMiB);
  memset(at, 7, kMiB);
  EXPECT_EQ(far_munmap(at + 100 * kPageSize, 10 * kPageSize), 0);
  EXPECT_TRUE(committed(at, 100 * kPageSize));
  EXPECT_FALSE(committed(at + 100 * kPageSize, kPageSize));
  EXPECT_FALSE(committed(at + 109 * kPageSize, kPageSize));
  EXPECT_TRUE(committed(at + 110 * kPageSize, kMiB - 110 * kPageSize));
  EXPECT_EQ(at[100 * kPageSize - 1], 7);
  EXPECT_EQ(at[110 * kPageSize], 7);
  EXPECT_EQ(far_munmap(at, kMiB), 0);  // over the hole, too
  EXPECT_FALSE(committed(at, kPageSize));
  EXPECT_FALSE(committed(at + kMiB - kPageSize, kPageSize));
  EXPECT_EQ(far_munmap(at, kMiB), 0);  // as munmap: a range without mappings is no error
}

TEST_F(MappingsTest, InvalidArgumentsAreRefused) {
  char* at = map(kMiB);
  EXPECT_EQ(far_munmap(at + 1, kPageSize), -EINVAL);
  EXPECT_EQ(far_munmap(at, 0), -EINVAL);
  EXPECT_EQ(far_mmap(at + 1, kMiB, kReadWrite, kAnonymous | MAP_FIXED, -1, 0), -EINVAL);
  EXPECT_EQ(far_mmap(at, 0, kReadWrite, kAnonymous | MAP_FIXED, -1, 0), -EINVAL);
  EXPECT_EQ(far_mprotect(at + 1, kPageSize, PROT_READ), -EINVAL);
  EXPECT_EQ(far_madvise(at + 1, kPageSize, MADV_DONTNEED), -EINVAL);
  EXPECT_EQ(far_madvise(at, kPageSize, 12345), -EINVAL);
  EXPECT_EQ(far_mremap(at + 1, kMiB, 2 * kMiB, MREMAP_MAYMOVE, nullptr), -EINVAL);
  EXPECT_EQ(far_mremap(at, kMiB, 0, MREMAP_MAYMOVE, nullptr), -EINVAL);
  EXPECT_EQ(far_mremap(at, kMiB, kMiB, MREMAP_FIXED, at), -EINVAL);
  EXPECT_EQ(far_mremap(at, 2 * kMiB, 3 * kMiB, MREMAP_MAYMOVE, nullptr), -EFAULT);  // more than is mapped
  EXPECT_TRUE(committed(at, kMiB));
  far_munmap(at, kMiB);
}

TEST_F(MappingsTest, AFixedMappingReplacesWhatWasThere) {
  char* at = map(kMiB);
  memset(at, 7, kMiB);
  EXPECT_EQ(map(kPageSize, kReadWrite, kAnonymous | MAP_FIXED, at + kPageSize), at + kPageSize);  // however small
  EXPECT_EQ(at[kPageSize - 1], 7);
  EXPECT_EQ(at[kPageSize], 0);
  EXPECT_EQ(at[2 * kPageSize - 1], 0);
  EXPECT_EQ(at[2 * kPageSize], 7);
  EXPECT_EQ(far_mmap(at, kPageSize, kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0), -EEXIST);
  EXPECT_EQ(at[0], 7);
  far_munmap(at, kPageSize);
  EXPECT_EQ(map(kPageSize, kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, at), at);
  EXPECT_EQ(far_mmap(at, kPageSize, kReadWrite, MAP_PRIVATE | MAP_FIXED, -1, 0), -EBADF);
  EXPECT_TRUE(committed(at, kPageSize));  // refused, and nothing is lost
  far_munmap(at, kMiB);
}

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
  bool is_foreign(const char* at) { return pager_->is_foreign(reinterpret_cast<uint64_t>(at)); }
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
  bool in_space(const char* at) { return pager_->in_space(reinterpret_cast<uint64_t>(at)); }
  bool is_far_memory(const char* at) { return is_far(at) && !pager_->is_foreign(reinterpret_cast<uint64_t>(at)); }
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

TEST_F(MappingsTest, APlaceThatIsFreeIsTakenAsAHint) {
  char *first = map(kMiB), *at = map(kMiB);
  far_munmap(first, kMiB);
  far_munmap(at, kMiB);
  EXPECT_EQ(map(kMiB, kReadWrite, kAnonymous, at), at);  // not the first that is free
  char* other = map(kMiB, kReadWrite, kAnonymous, at);
  EXPECT_NE(other, at);
  EXPECT_TRUE(is_far(other));
  far_munmap(at, kMiB);
  far_munmap(other, kMiB);
}

TEST_F(MappingsTest, AReservationCostsNothingUntilItIsCommitted) {
  char* at = map(64 * kMiB, PROT_NONE);
  EXPECT_FALSE(committed(at, kPageSize));
  EXPECT_EQ(far_mprotect(at + kMiB, 2 * kPageSize, kReadWrite), 0);
  EXPECT_FALSE(committed(at + kMiB - kPageSize, kPageSize));
  EXPECT_TRUE(committed(at + kMiB, 2 * kPageSize));
  EXPECT_FALSE(committed(at + kMiB + 2 * kPageSize, kPageSize));
  at[kMiB] = 5;
  EXPECT_EQ(far_mprotect(at, 64 * kMiB, kReadWrite), 0);  // the rest is committed; existing pages are kept
  EXPECT_TRUE(committed(at, 64 * kMiB));
  EXPECT_EQ(at[kMiB], 5);
  far_munmap(at, 64 * kMiB);
}

TEST_F(MappingsTest, MoreThanTheServerHoldsIsRefusedAtTheCommit) {
  char* huge = map(kTestSpace / 2, PROT_NONE);
  EXPECT_EQ(far_mmap(nullptr, 2 * kTestSpace, kReadWrite, kAnonymous, -1, 0), -ENOMEM);  // no addresses
  far_munmap(huge, kTestSpace / 2);
  huge = map(kTestSpace / 2, PROT_NONE);  // they are free again
  far_munmap(huge, kTestSpace / 2);
}

TEST_F(MappingsTest, MappingsShrinkInPlace) {
  char* at = map(kMiB);
  at[0] = 1;
  EXPECT_EQ(pointer(far_mremap(at, kMiB, kMiB / 2, 0, nullptr)), at);
  EXPECT_TRUE(committed(at, kMiB / 2));
  EXPECT_FALSE(committed(at + kMiB / 2, kPageSize));
  EXPECT_EQ(at[0], 1);
  EXPECT_EQ(pointer(far_mremap(at, kMiB / 2, kMiB / 2, 0, nullptr)), at);
  far_munmap(at, kMiB);
}

TEST_F(MappingsTest, MappingsGrowInPlaceWhereThereIsRoom) {
  char* at = map(2 * kMiB);
  memset(at, 7, 2 * kMiB);
  far_munmap(at + kMiB, kMiB);
  EXPECT_EQ(pointer(far_mremap(at, kMiB, 2 * kMiB, 0, nullptr)), at);
  EXPECT_EQ(at[kMiB - 1], 7);
  EXPECT_EQ(at[kMiB], 0);  // the old contents are gone
  far_munmap(at, 2 * kMiB);
}

TEST_F(MappingsTest, WhereThereIsNoRoomTheyMoveIfTheyMay) {
  char* at = map(2 * kMiB);
  for (size_t i = 0; i < kMiB; i++) at[i] = static_cast<char>(i * 7);
  EXPECT_EQ(far_mremap(at, kMiB, 3 * kMiB, 0, nullptr), -ENOMEM);
  long moved = far_mremap(at, kMiB, 3 * kMiB, MREMAP_MAYMOVE, nullptr);
  ASSERT_FALSE(os::is_error(moved));
  char* to = pointer(moved);
  EXPECT_NE(to, at);
  EXPECT_TRUE(is_far(to));
  for (size_t i = 0; i < kMiB; i++) ASSERT_EQ(to[i], static_cast<char>(i * 7)) << i;
  EXPECT_EQ(to[kMiB], 0);
  EXPECT_FALSE(committed(at, kPageSize));
  EXPECT_TRUE(committed(at + kMiB, kMiB));  // the range that was not moved
  far_munmap(to, 3 * kMiB);
  far_munmap(at, 2 * kMiB);
}

TEST_F(MappingsTest, AMoveToAPlaceReplacesWhatIsThere) {
  char *from = map(kMiB), *to = map(kMiB);
  memset(from, 1, kMiB);
  memset(to, 2, kMiB);
  EXPECT_EQ(far_mremap(from, kMiB, kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, from + kPageSize), -EINVAL);  // overlap
  EXPECT_EQ(far_mremap(from, kMiB, kMiB / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to + 1), -EINVAL);
  EXPECT_EQ(pointer(far_mremap(from, kMiB, kMiB / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to)), to);
  EXPECT_EQ(to[0], 1);
  EXPECT_EQ(to[kMiB / 2 - 1], 1);
  EXPECT_EQ(to[kMiB / 2], 2);
  EXPECT_FALSE(committed(from, kPageSize));
  far_munmap(to, kMiB);
}

TEST_F(MappingsTest, DiscardedPagesAreZero) {
  char* at = map(kMiB);
  memset(at, 7, kMiB);
  pager_.evict(at, kMiB);
  EXPECT_EQ(far_madvise(at + kPageSize, 2 * kPageSize, MADV_DONTNEED), 0);
  EXPECT_EQ(at[kPageSize - 1], 7);
  EXPECT_EQ(at[kPageSize], 0);
  EXPECT_EQ(at[3 * kPageSize - 1], 0);
  EXPECT_EQ(at[3 * kPageSize], 7);
  for (int advice : {MADV_NORMAL, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE, MADV_DONTDUMP}) {
    EXPECT_EQ(far_madvise(at, kMiB, advice), 0) << advice;
  }
  EXPECT_EQ(at[0], 7);
  far_munmap(at, kMiB);
}

// So few pages that evictors, which make room for them among the filler pages, do not get to them.
TEST_F(MappingsTest, WhatWillBeNeededIsReadAhead) {
  constexpr size_t kBytes = kMiB / 4;
  char* at = map(kBytes);
  memset(at, 7, kBytes);
  auto faults_of_touching = [&] {
    uint64_t before =
        pager_->stats().get(pager::Counter::kMajorFaults) + pager_->stats().get(pager::Counter::kZeroFaults);
    for (size_t i = 0; i < kBytes; i += kPageSize) at[i]++;
    return pager_->stats().get(pager::Counter::kMajorFaults) + pager_->stats().get(pager::Counter::kZeroFaults) -
           before;
  };
  for (int advice : {MADV_WILLNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE}) {
    pager_.evict(at, kBytes);
    uint64_t fetched = pager_->stats().get(pager::Counter::kHintsFetched);
    EXPECT_EQ(far_madvise(at, kBytes, advice), 0) << advice;
    EXPECT_GT(pager_->stats().get(pager::Counter::kHintsFetched) - fetched, kBytes / kPageSize / 2) << advice;
    EXPECT_LT(faults_of_touching(), kBytes / kPageSize / 2) << advice;
  }
  for (size_t i = 0; i < kBytes; i += kPageSize) ASSERT_EQ(at[i], 10) << i;
  EXPECT_EQ(far_madvise(at, kBytes, MADV_DONTNEED), 0);
  EXPECT_EQ(far_madvise(at, kBytes, MADV_POPULATE_WRITE), 0);
  EXPECT_LT(faults_of_touching(), kBytes / kPageSize / 2);
  for (size_t i = 0; i < kBytes; i += kPageSize) ASSERT_EQ(at[i], 1) << i;
  far_munmap(at, kBytes);
}

TEST_F(MappingsTest, LockingIsAccepted) {
  char* at = map(kMiB);
  EXPECT_EQ(far_mlock(SYS_mlock, at, kMiB, 0), 0);
  EXPECT_EQ(far_mlock(SYS_munlock, at, kMiB, 0), 0);
  far_munmap(at, kMiB);
}

TEST_F(MappingsTest, NearMemoryIsTheKernels) {
  char* near = map(kPageSize);
  ASSERT_FALSE(is_far(near));
  near[0] = 1;
  EXPECT_EQ(far_mprotect(near, kPageSize, PROT_READ), 0);
  EXPECT_EQ(far_madvise(near, kPageSize, MADV_DONTNEED), 0);
  EXPECT_EQ(near[0], 0);
  char* larger = pointer(far_mremap(near, kPageSize, 4 * kPageSize, MREMAP_MAYMOVE, nullptr));
  EXPECT_FALSE(is_far(larger));
  EXPECT_EQ(far_munmap(larger, 4 * kPageSize), 0);
}

}  // namespace
}  // namespace farside::preload
