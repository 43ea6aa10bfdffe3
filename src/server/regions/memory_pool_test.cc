#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>

#include "base/clock.h"
#include "server/memory/guarded.h"
#include "server/regions/test_support.h"

namespace farside::server {
namespace {

TEST(MemoryPool, ARepeatedReservationCountsOnce) {
  MemoryPool pool(8 * kSlab, 0);
  Region* region = *pool.create(8 * kSlab);
  for (int i = 0; i < 3; i++) EXPECT_EQ(*pool.grow(region, 2 * kSlab, 1), 2 * kSlab);
  for (int i = 0; i < 3; i++) EXPECT_EQ(pool.shrink(region, kSlab, 2), kSlab);
  EXPECT_EQ(*pool.grow(region, 2 * kSlab, 1), kSlab);  // an old one, delayed
  EXPECT_EQ(*pool.grow(region, kSlab, 3), 2 * kSlab);
  pool.release(region);
}

TEST(MemoryPool, AControllerNamesThePoolToWhoAsksItForMemory) {
  MemoryPool pool(0, 0);
  auto region = pool.create(8 * kSlab);
  std::string text = region.ok() ? pool.grow(*region, kSlab, next()).status().text() : region.status().text();
  EXPECT_NE(text.find("a pool's controller and lends no memory; use pool://"), text.npos) << text;
  if (region.ok()) pool.release(*region);
}

TEST(MemoryPool, ARegionWhoseConnectionBrokeIsKeptForTheGraceTime) {
  constexpr uint64_t kLong = 3'600'000'000'000;
  MemoryPool pool(8 * kSlab, 0, kLong);
  Region* region = new_root(&pool, 8 * kSlab, 2 * kSlab);
  ASSERT_EQ(write(region, 0, 10, 7), 0);
  uint64_t id = region->name().id;
  auto name = region->name();
  pool.release(region, true);
  EXPECT_TRUE(pool.keeps_abandoned());
  pool.free_abandoned(now_ns());
  EXPECT_EQ(pool.usage().charged, 2 * kSlab);
  Region* again = *pool.attach(id, name.secret);
  EXPECT_EQ(read(again, 0, 10), std::vector<uint8_t>(10, 7));
  pool.free_abandoned(now_ns() + 2 * kLong);
  EXPECT_EQ(pool.usage().regions, 1u);  // a client has reconnected
  pool.release(again, true);
  pool.free_abandoned(now_ns() + 2 * kLong);
  EXPECT_EQ(pool.usage().regions, 0u);
  pool.release(new_root(&pool, kSlab, kSlab));  // closed, not broken: freed at once
  EXPECT_EQ(pool.usage().regions, 0u);
}

TEST(MemoryPool, TheGraceTimeBeginsWhenTheLastConnectionBreaks) {
  constexpr uint64_t kGrace = 3'600'000'000'000;
  MemoryPool pool(8 * kSlab, 0, kGrace);
  Region* region = new_root(&pool, 8 * kSlab, 2 * kSlab);
  auto name = region->name();
  for (int i = 0; i < 3; i++) {
    pool.release(region, true);
    uint64_t end_of_first = now_ns() + kGrace;
    for (int k = 0; k < 2; k++) ASSERT_TRUE(pool.attach(name.id, name.secret).ok());
    while (now_ns() + kGrace == end_of_first) {}
    for (int k = 0; k < 2; k++) pool.release(region, true);
    pool.free_abandoned(end_of_first);
    auto again = pool.attach(name.id, name.secret);
    ASSERT_TRUE(again.ok()) << i;
    EXPECT_EQ(*again, region);
  }
  pool.release(region);
  EXPECT_EQ(pool.usage().regions, 1u);
  pool.free_abandoned(now_ns() + 2 * kGrace);
  EXPECT_EQ(pool.usage().regions, 0u);
}

TEST(MemoryPool, ManyRangesOfOnePageAreStoredExactly) {
  MemoryPool pool(8 * kSlab, 0);
  Region* region = new_root(&pool, 8 * kSlab, kSlab);
  std::vector<uint8_t> expected(8 * kPage);
  for (size_t i = kPage; i < 7 * kPage; i++) expected[i] = static_cast<uint8_t>(i * 13);
  ASSERT_EQ(write(region, kPage, {expected.begin() + kPage, expected.begin() + 7 * kPage}), 0);
  std::mt19937 random(1);
  for (int round = 0; round < 500; round++) {
    std::vector<wire::ByteRange> ranges;
    std::vector<uint8_t> data;
    for (uint64_t count = 1 + random() % 40, at = random() % kPage; count > 0 && at < expected.size(); count--) {
      uint64_t bytes = std::min(1 + random() % (random() % 8 == 0 ? 5000 : 200), expected.size() - at);
      ranges.push_back({at, bytes});
      for (uint64_t i = 0; i < bytes; i++) data.push_back(expected[at + i] = static_cast<uint8_t>(random()));
      at += bytes + random() % 3 * (random() % 500);  // often adjacent to the next one
    }
    if (round % 2 == 1) {  // in descending order
      std::vector<uint8_t> turned;
      for (size_t i = ranges.size(), end = data.size(); i-- > 0; end -= ranges[i].bytes)
        turned.insert(turned.end(), data.begin() + static_cast<long>(end - ranges[i].bytes),
                      data.begin() + static_cast<long>(end));
      std::reverse(ranges.begin(), ranges.end());
      data = turned;
    }
    wire::RangeList list(reinterpret_cast<const std::byte*>(ranges.data()), static_cast<uint32_t>(ranges.size()));
    ASSERT_EQ(write_list(region, list, data.data()), 0);
    ASSERT_EQ(read(region, 0, expected.size()), expected) << round;
  }
  pool.release(region);
}

TEST(MemoryFile, MissingBytesAreCountedByPages) {
  MemoryFile file;
  ASSERT_EQ(file.create(64 * kPage), 0);
  EXPECT_EQ(file.missing_bytes(10, 64 * kPage - 10), 64 * kPage);
  for (uint64_t page : {3, 4, 9, 63}) ASSERT_EQ(file.write(page * kPage + 5, "x", 1), 0);
  EXPECT_EQ(file.missing_bytes(0, 64 * kPage), 60 * kPage);
  EXPECT_EQ(file.missing_bytes(3 * kPage + 100, 2 * kPage), kPage);  // pages 3, 4 and 5
  EXPECT_EQ(file.missing_bytes(9 * kPage, 1), 0u);
  EXPECT_EQ(file.missing_bytes(62 * kPage, 2 * kPage), kPage);
  ASSERT_EQ(file.punch(4 * kPage, kPage), 0);
  EXPECT_EQ(file.missing_bytes(3 * kPage, 2 * kPage), kPage);
}

TEST(Fence, ExcludesOlderGenerations) {
  Fence fence;
  EXPECT_TRUE(fence.advance(1));
  EXPECT_TRUE(fence.enter(1).owns_lock());
  EXPECT_TRUE(fence.advance(3));
  EXPECT_FALSE(fence.enter(1).owns_lock());
  EXPECT_FALSE(fence.advance(2));
  EXPECT_TRUE(fence.enter(3).owns_lock());
}

TEST(MemoryPool, ReservationsAreLimitedByCapacityAndQuota) {
  MemoryPool pool(4 * kSlab, 3 * kSlab);
  Region* a = *pool.create(16 * kSlab);
  Region* b = *pool.create(16 * kSlab);
  EXPECT_TRUE(pool.grow(a, 3 * kSlab, next()).ok());
  EXPECT_EQ(pool.grow(a, kSlab, next()).status().code(), ENOMEM);      // the quota
  EXPECT_EQ(pool.grow(b, 2 * kSlab, next()).status().code(), ENOMEM);  // the capacity
  EXPECT_TRUE(pool.grow(b, kSlab, next()).ok());
  EXPECT_EQ(pool.shrink(a, 2 * kSlab, next()), kSlab);
  EXPECT_TRUE(pool.grow(b, 2 * kSlab, next()).ok());
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(pool.usage().charged, 0u);
}

// What a program's forked children store counts against its quota.
TEST(MemoryPool, SnapshotsCountAgainstTheQuota) {
  MemoryPool pool(16 * kSlab, 2 * kSlab);
  Region* parent = new_root(&pool, 4 * kSlab, kSlab);
  for (uint64_t at = 0; at < kSlab; at += 1 << 20) ASSERT_EQ(write(parent, at, 1 << 20, 1), 0);
  Region *first = fork_of(&pool, parent), *second = fork_of(&pool, parent);
  for (uint64_t at = 0; at < kSlab; at += 1 << 20) ASSERT_EQ(write(parent, at, 1 << 20, 2), 0);
  std::byte byte;
  bool first_lives = read_list(first, List{{0, 1}}, &byte) == 0,
       second_lives = read_list(second, List{{0, 1}}, &byte) == 0;
  EXPECT_NE(first_lives, second_lives);  // there was room for the old content of one slab
  EXPECT_EQ(pool.usage().charged, 2 * kSlab);
  EXPECT_EQ(pool.grow(parent, kSlab, next()).status().code(), ENOMEM);
  pool.release(first);
  pool.release(second);
  EXPECT_TRUE(pool.grow(parent, kSlab, next()).ok());
  pool.release(parent);
  EXPECT_EQ(pool.usage().charged + pool.usage().overhead, 0u);
}

// A client cannot make the server use memory that is charged to no account: by many empty regions, by pages far apart,
// or by snapshots of them.
TEST(MemoryPool, WhatDescribesTheDataIsChargedAndBounded) {
  constexpr uint64_t kTiB = uint64_t{1} << 40, kLimit = 4 * kSlab + 4 * kSlab / 16 + kSlab;
  MemoryPool pool(4 * kSlab, 0);
  Region* honest = new_root(&pool, kSlab, kSlab);
  Region* sparse = new_root(&pool, 64 * kTiB, kSlab);
  std::vector<Region*> snapshots;
  for (int i = 0; i < 4; i++) snapshots.push_back(fork_of(&pool, sparse));
  uint64_t written = 0;
  int r = 0;
  for (uint64_t at = 0; at < 64 * kTiB && r == 0; at += kTiB / 512) {
    r = write(sparse, at, 1, 'x');
    bool temporary = r == 0 && ++written % 8 != 0;
    ASSERT_EQ(temporary ? discard(sparse, at, kPage) : 0, 0);
  }
  EXPECT_EQ(r, -ENOMEM);
  EXPECT_GT(written, 100u);
  for (Region* snapshot : snapshots) {
    std::byte byte{1};
    int read_result = read_list(snapshot, List{{0, 1}}, &byte);
    EXPECT_TRUE(read_result == -EIO || (read_result == 0 && byte == std::byte{0}));  // given up, or whole
  }
  EXPECT_LE(pool.usage().charged + pool.usage().overhead, kLimit + kSlab);
  for (uint64_t at = 0; at < kSlab; at += 1 << 20) ASSERT_EQ(write(honest, at, 1 << 20, 1), 0);
  Result<Region*> another = pool.create(kSlab);
  EXPECT_EQ(another.status().code(), ENOMEM);
  for (Region* region : snapshots) pool.release(region);
  pool.release(sparse);
  std::vector<Region*> empty;
  for (another = pool.create(64 * kTiB); another.ok() && empty.size() < 500; another = pool.create(64 * kTiB))
    empty.push_back(*another);
  EXPECT_EQ(another.status().code(), ENOMEM);
  for (Region* region : empty) pool.release(region);
  pool.release(honest);
  EXPECT_EQ(pool.usage().charged + pool.usage().overhead, 0u);
}

TEST(SlabSet, FindsTheNextSlab) {
  constexpr uint64_t kTiB = uint64_t{1} << 40;
  SlabSet slabs(64 * kTiB);
  EXPECT_EQ(slabs.next(0), SlabSet::kNone);
  for (uint64_t at : {3 * kSlab, 63 * kSlab, 40 * kTiB, 64 * kTiB - kSlab}) slabs.add(at + 5);
  EXPECT_EQ(slabs.count(), 4u);
  EXPECT_EQ(slabs.next(0), 3 * kSlab);
  EXPECT_EQ(slabs.next(3 * kSlab + 7), 3 * kSlab);
  EXPECT_EQ(slabs.next(4 * kSlab), 63 * kSlab);
  EXPECT_EQ(slabs.next(64 * kSlab), 40 * kTiB);
  EXPECT_EQ(slabs.next(40 * kTiB + kSlab), 64 * kTiB - kSlab);
  slabs.remove(64 * kTiB - kSlab);
  EXPECT_EQ(slabs.next(40 * kTiB + kSlab), SlabSet::kNone);
  EXPECT_EQ(slabs.next(64 * kTiB), SlabSet::kNone);
}

TEST(PageBitmap, TakesMemoryWhereBitsAreSet) {
  PageBitmap bitmap(uint64_t{1} << 34);
  uint64_t empty = bitmap.memory_bytes();
  EXPECT_FALSE(bitmap.test(123'456'789));
  for (uint64_t page : {uint64_t{3}, uint64_t{123'456'789}, (uint64_t{1} << 34) - 1}) bitmap.set(page);
  std::vector<uint64_t> found;
  for (uint64_t page = bitmap.next(0); page != PageBitmap::kNone; page = bitmap.next(page + 1)) found.push_back(page);
  EXPECT_EQ(found, (std::vector<uint64_t>{3, 123'456'789, (uint64_t{1} << 34) - 1}));
  EXPECT_EQ(bitmap.memory_bytes(), empty + 3 * PageBitmap::kPartPages / 8);
  EXPECT_TRUE(bitmap.has_part_of(0));
  EXPECT_FALSE(bitmap.has_part_of(uint64_t{1} << 33));
}

TEST(MemoryPool, ARegionIsNotReservedBeyondItsSize) {
  MemoryPool pool(100 * kSlab, 0);
  Region* a = *pool.create(kSlab + kPage);
  EXPECT_TRUE(pool.grow(a, 2 * kSlab, next()).ok());
  EXPECT_EQ(pool.grow(a, kSlab, next()).status().code(), EINVAL);
  pool.release(a);
}

TEST(MemoryPool, StoresNoMoreThanWasReserved) {
  MemoryPool pool(4 * kSlab, 0);
  Region* a = *pool.create(4 * kSlab);
  EXPECT_EQ(write(a, 0, 1, 1), -ENOSPC);
  ASSERT_TRUE(pool.grow(a, kSlab, next()).ok());
  for (int round = 0; round < 3; round++) {  // the same pages again and again are counted once
    for (uint64_t at = 0; at < kSlab; at += 1 << 20) ASSERT_EQ(write(a, at, 1 << 20, 1), 0);
  }
  EXPECT_EQ(write(a, kSlab, 1, 1), -ENOSPC);
  EXPECT_EQ(discard(a, 0, kPage), 0);
  EXPECT_EQ(write(a, kSlab, 1, 1), 0);
  EXPECT_EQ(write(a, 0, 1, 1), -ENOSPC);
  pool.release(a);
}

TEST(MemoryPool, AttachingRequiresTheSecret) {
  MemoryPool pool(kSlab, 0);
  Region* a = *pool.create(kSlab);
  uint8_t wrong[wire::kSecretBytes];
  std::copy_n(a->name().secret, sizeof wrong, wrong);
  wrong[15] ^= 1;
  EXPECT_FALSE(pool.attach(a->name().id, wrong).ok());
  EXPECT_FALSE(pool.snapshot(a->name().id, wrong).ok());
  EXPECT_FALSE(pool.attach(a->name().id + 1, a->name().secret).ok());
  ASSERT_TRUE(pool.attach(a->name().id, a->name().secret).ok());
  pool.release(a);
  pool.release(a);
  EXPECT_EQ(pool.usage().regions, 0u);
}

TEST(Snapshots, ParentAndChildDiverge) {
  MemoryPool pool(16 * kSlab, 0);
  Region* parent = new_root(&pool, kSlab, kSlab);
  write(parent, 0, 3 * kPage, 'a');
  Region* child = fork_of(&pool, parent);
  write(parent, 10, 5, 'p');
  write(child, kPage + 10, 5, 'c');
  EXPECT_EQ(discard(parent, 2 * kPage, kPage), 0);
  EXPECT_EQ(read(child, 0, kPage), std::vector<uint8_t>(kPage, 'a'));
  EXPECT_EQ(read(parent, kPage, kPage), std::vector<uint8_t>(kPage, 'a'));
  EXPECT_EQ(read(child, kPage + 9, 3), (std::vector<uint8_t>{'a', 'c', 'c'}));
  EXPECT_EQ(read(child, 2 * kPage, kPage), std::vector<uint8_t>(kPage, 'a'));
  EXPECT_EQ(read(parent, 2 * kPage, 1), std::vector<uint8_t>{0});
  EXPECT_EQ(discard(child, kPage, kPage), 0);
  EXPECT_EQ(read(child, kPage, kPage), std::vector<uint8_t>(kPage, 0));
  pool.release(child);
  pool.release(parent);
  EXPECT_EQ(pool.usage().charged, 0u);
}

// As daemons do: a process forks, the parent exits, the child forks again. The chain must not grow.
TEST(Snapshots, ChainsCollapseWhenParentsAreReleased) {
  MemoryPool pool(4 * kSlab, 0);
  Region* region = new_root(&pool, kSlab, kSlab);
  std::vector<uint8_t> model(64 * kPage);
  for (int generation = 0; generation < 100; generation++) {
    std::vector<uint8_t> data(3 * kPage, static_cast<uint8_t>(generation + 1));
    uint64_t at = static_cast<uint64_t>(generation) * 2777 % (60 * kPage);
    ASSERT_EQ(write(region, at, data), 0);
    std::copy(data.begin(), data.end(), model.begin() + static_cast<long>(at));
    Region* child = fork_of(&pool, region);
    pool.release(region);
    region = child;
    EXPECT_EQ(pool.usage().regions, 1u);
    EXPECT_FALSE(region->is_overlay());
    ASSERT_EQ(read(region, 0, model.size()), model);
  }
  EXPECT_LE(region->stored_bytes(), model.size());
  pool.release(region);
  EXPECT_EQ(pool.usage().charged, 0u);
}

TEST(Snapshots, AFullServerGivesUpTheSnapshotButNotTheParent) {
  MemoryPool pool(kSlab, 0);
  Region* parent = new_root(&pool, kSlab, kSlab);  // all of the capacity
  write(parent, 0, kPage, 'a');
  Region* child = fork_of(&pool, parent);
  Region* grandchild = fork_of(&pool, child);
  EXPECT_EQ(write(child, 0, 1, 'c'), -ENOMEM);
  EXPECT_EQ(write(parent, 0, 1, 'p'), 0);
  std::byte byte;
  EXPECT_EQ(read_list(child, List{{0, 1}}, &byte), -EIO);
  EXPECT_EQ(read_list(grandchild, List{{0, 1}}, &byte), -EIO);
  EXPECT_FALSE(pool.snapshot(child->name().id, child->name().secret).ok());
  EXPECT_EQ(read(parent, 0, 1), std::vector<uint8_t>{'p'});
  for (Region* r : {child, grandchild, parent}) pool.release(r);
  EXPECT_EQ(pool.usage().charged, 0u);
}

// A read that has found a page stored must not access it when it is discarded: that would store a page of zeros.
TEST(MemoryPool, DiscardsExcludeReads) {
  MemoryPool pool(8 * kSlab, 0);
  Region* region = *pool.create(kSlab);
  ASSERT_TRUE(pool.grow(region, kSlab, 1).ok());
  wire::ByteRange range = {0, kPage};
  wire::RangeList list(reinterpret_cast<const std::byte*>(&range), 1);
  const std::vector<std::byte> content(kPage, std::byte{1});
  std::atomic<bool> over{false};
  std::thread reader([&] {
    std::vector<std::byte> page(kPage);
    while (!over) {
      EXPECT_EQ(read_list(region, list, page.data()), 0);
      region->use_in_place(list, [&](std::span<iovec> pieces) {
        return guarded([&] { copy_shared(page.data(), pieces[0].iov_base, kPage); });
      });
    }
  });
  for (int i = 0; i < 2000 && !HasFailure(); i++) {
    EXPECT_EQ(write_list(region, list, content.data()), 0);
    EXPECT_EQ(discard_list(region, list), 0);
    EXPECT_EQ(region->stored_bytes(), 0u) << i;
  }
  over = true;
  reader.join();
  pool.release(region);
}

}  // namespace
}  // namespace farside::server
