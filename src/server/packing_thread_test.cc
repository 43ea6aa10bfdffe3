#include "server/packing_thread.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <utility>
#include <vector>

#include "server/regions/test_support.h"

namespace farside::server {
namespace {

// A region fills RAM and file, which others cannot have then.
TEST(PackingThread, APoolLendsRamAndFile) {
  constexpr uint64_t kRam = kSlab, kInFile = 2 * kSlab, kForTables = 256 * 1024;
  auto file = OverflowFile::create(testing::TempDir(), kInFile);
  ASSERT_TRUE(file.ok()) << file.status().text();
  MemoryPool pool(kRam, 0, 0, Compression::kAuto, std::make_unique<Overflow>(std::move(*file), kRam));
  PackingThread packing(&pool, 2'000'000);
  EXPECT_EQ(pool.usage().capacity, kRam + kInFile);
  Region* region = new_root(&pool, 8 * kSlab, kRam + kInFile);
  EXPECT_EQ(pool.grow(region, kSlab, next()).status().code(), ENOMEM);
  auto content = [](uint64_t at) {
    std::vector<uint8_t> bytes(1 << 20);
    std::minstd_rand random(static_cast<unsigned>(at >> 20) + 1);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 8);
    return bytes;
  };
  for (int round = 0; round < 2; round++) {
    for (uint64_t at = 0; at < kRam + kInFile; at += 1 << 20) {
      ASSERT_EQ(write(region, at, content(at + static_cast<uint64_t>(round))), 0);
      ASSERT_LE(region->stored().used, kRam + kRam / 16 + kSlab + kForTables);
    }
  }
  EXPECT_GT(pool.usage().overflow, kSlab / 2);
  for (uint64_t at = 0; at < kRam + kInFile; at += 1 << 20) ASSERT_EQ(read(region, at, 1 << 20), content(at + 1)) << at;
  EXPECT_EQ(discard(region, 0, kRam + kInFile), 0);
  pool.release(region);
  while (pool.tidy()) {}
  EXPECT_EQ(pool.usage().overflow, 0u);
  EXPECT_EQ(pool.overflow()->file()->used_bytes(), 0u);
}

// A page that is being compressed is in both places for a moment, and its region has reserved no more than its pages.
TEST(PackingThread, AFullRegionMayBeWrittenWhileItIsCompressed) {
  constexpr uint64_t kEpochNs = 200'000, kPages = kSlab / kPageSize;
  MemoryPool pool(4 * kSlab, 0, 0, Compression::kLz4);
  PackingThread packing(&pool, kEpochNs);
  Region* region = new_root(&pool, kSlab, kSlab);
  auto content = [](uint64_t page, uint64_t turn) { return std::vector<uint8_t>(kPageSize, (page + turn) % 251); };
  uint64_t turn = 0;
  for (uint64_t was_packed = 0; turn < 2000 && was_packed < 200; turn++) {
    for (uint64_t page = turn % 16; page < kPages; page += turn == 0 ? 1 : 16)
      ASSERT_EQ(write(region, page * kPageSize, content(page, turn)), 0) << turn;
    was_packed += pool.usage().packed > 0;
  }
  EXPECT_LT(turn, 2000u) << "nothing is compressed";
  pool.release(region);
}

}  // namespace
}  // namespace farside::server
