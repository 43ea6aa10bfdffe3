// Tests of the mmap family on far space: which mappings are far, and the effect of each call on ranges of them.
#include "preload/mappings_test.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace farside::preload {
namespace {

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

TEST_F(MappingsTest, WhatIsNotNeededSoonLeavesFirst) {
  constexpr size_t kPages = 64;
  for (int advice : {MADV_COLD, MADV_PAGEOUT}) {
    char *kept = map(kPages * kPageSize), *cold = map(kPages * kPageSize);
    memset(kept, 7, kPages * kPageSize);
    memset(cold, 8, kPages * kPageSize);
    auto near_of = [&](const char* at) {
      size_t near = 0;
      for (size_t i = 0; i < kPages; i++) near += pager_.is_near(at + i * kPageSize);
      return near;
    };
    EXPECT_EQ(far_madvise(cold, kPages * kPageSize, advice), 0);
    size_t before = near_of(kept);
    for (int round = 0; round < 1000 && near_of(cold) > 0; round++) pager_.touch_filler(kPages);
    EXPECT_EQ(near_of(cold), 0u) << advice;
    EXPECT_GE(near_of(kept), before / 2) << advice;
    for (size_t i = 0; i < kPages * kPageSize; i++) ASSERT_EQ(cold[i], 8) << i;
    far_munmap(kept, kPages * kPageSize);
    far_munmap(cold, kPages * kPageSize);
  }
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
