#include "remote/slab_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace farside::remote {
namespace {

TEST(SlabTable, CoversARegionThatEndsWithinASlab) {
  EXPECT_EQ(SlabTable(kSlabBytes).slabs(), 1u);
  EXPECT_EQ(SlabTable(kSlabBytes + 1).slabs(), 2u);
  EXPECT_EQ(SlabTable(5 * kSlabBytes).slabs(), 5u);
  EXPECT_EQ(SlabTable(1).slabs(), 1u);
}

TEST(SlabTable, RangesAreCutAtSlabs) {
  EXPECT_EQ(SlabTable::slab_of(0), 0u);
  EXPECT_EQ(SlabTable::slab_of(kSlabBytes - 1), 0u);
  EXPECT_EQ(SlabTable::slab_of(kSlabBytes), 1u);
  EXPECT_EQ(SlabTable::bytes_in_slab(0, 100), 100u);
  EXPECT_EQ(SlabTable::bytes_in_slab(0, kSlabBytes), kSlabBytes);
  EXPECT_EQ(SlabTable::bytes_in_slab(0, kSlabBytes + 1), kSlabBytes);
  EXPECT_EQ(SlabTable::bytes_in_slab(kSlabBytes - 1, 100), 1u);
  EXPECT_EQ(SlabTable::bytes_in_slab(kSlabBytes, 100), 100u);
  EXPECT_EQ(SlabTable::bytes_in_slab(7 * kSlabBytes + 10, ~uint64_t{0} >> 1), kSlabBytes - 10);
}

TEST(SlabTable, SlabsHaveNoHoldersAtFirst) {
  SlabTable table(100 * kSlabBytes);
  for (uint64_t slab = 0; slab < 100; slab++) {
    EXPECT_EQ(table.holders(slab), 0u);
    EXPECT_EQ(table.used(slab), 0u);
  }
}

TEST(SlabTable, SlabsHaveTheirOwnHoldersAndUse) {
  SlabTable table(3 * kSlabBytes);
  table.place(1, only(0) | only(kMaxServers - 1));
  table.use(1, kSlabBytes);
  table.use(2, 4096);
  table.use(2, 4096);
  table.unuse(2, 4096);
  EXPECT_EQ(table.holders(0), 0u);
  EXPECT_EQ(table.holders(1), ServerSet{1} | ServerSet{1} << (kMaxServers - 1));
  EXPECT_EQ(table.holders(2), 0u);
  EXPECT_EQ(table.used(0), 0u);
  EXPECT_EQ(table.used(1), kSlabBytes);
  EXPECT_EQ(table.used(2), 4096u);
  table.place(1, 0);
  EXPECT_EQ(table.holders(1), 0u);
}

TEST(SlabTableDeathTest, MoreCannotBeGivenBackThanIsUsed) {
  SlabTable table(kSlabBytes);
  table.use(0, 4096);
  EXPECT_DEATH(table.unuse(0, 4097), "internal error");
}

// A reader that loads a slab's holders also sees the writes made before they were published.
TEST(SlabTable, HoldersArePublished) {
  constexpr uint64_t kSlabs = 1000;
  for (int round = 0; round < 20; round++) {
    SlabTable table(kSlabs * kSlabBytes);
    std::vector<uint64_t> entries(kSlabs);
    std::thread placer([&] {
      for (uint64_t slab = 0; slab < kSlabs; slab++) {
        entries[slab] = slab + 1;
        table.place(slab, only(slab % kMaxServers));
      }
    });
    for (uint64_t slab = 0; slab < kSlabs; slab++) {
      ServerSet holders;
      while ((holders = table.holders(slab)) == 0) {}
      ASSERT_EQ(holders, only(slab % kMaxServers));
      ASSERT_EQ(entries[slab], slab + 1);
    }
    placer.join();
  }
}

}  // namespace
}  // namespace farside::remote
