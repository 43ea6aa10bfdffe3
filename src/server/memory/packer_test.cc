// The packer alone, and beside threads that read, write and discard all pages.
#include "server/memory/packer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <vector>

#include "server/memory/packer_fixture.h"
#include "server/memory/pool_log.h"

namespace farside::server {
namespace {

TEST_F(PackerTest, ColdPagesUseLessMemoryAndReadTheSame) {
  constexpr uint64_t kPages = 1000;
  for (uint64_t i = 0; i < kPages; i++) write(i, page_of(static_cast<uint32_t>(i)));
  uint64_t before = file_.used_bytes();
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), 0u);  // they are not cold yet
  grow_cold();
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), kPages);
  EXPECT_EQ(file_.stored_bytes(), kPages * kPage);
  EXPECT_LT(file_.used_bytes(), before / 4);
  EXPECT_EQ(file_.missing_bytes(0, (kPages + 3) * kPage), 3 * kPage);
  EXPECT_EQ(file_.next_data(5 * kPage), 5 * kPage);
  for (uint64_t i = 0; i < kPages; i++) ASSERT_EQ(read(i), page_of(static_cast<uint32_t>(i))) << i;
  EXPECT_EQ(packed_->packed_pages(), kPages);
}

TEST_F(PackerTest, PagesThatAreUsedStay) {
  for (uint32_t i = 0; i < 3; i++) write(i, page_of(i));
  grow_cold();
  read(1);
  write(2, page_of(9));
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), 1u);
}

TEST_F(PackerTest, WhatIsWrittenOrDiscardedGivesItsRoomBack) {
  constexpr uint64_t kPages = 4000;
  for (uint64_t i = 0; i < kPages; i++) write(i, page_of(static_cast<uint32_t>(i), 1500));
  grow_cold();
  pack_all();
  uint64_t full = packed_->pool_bytes();
  for (uint64_t i = 0; i < kPages; i += 2) write(i, page_of(7));
  ASSERT_EQ(file_.punch(2000 * kPage, 2000 * kPage), 0);
  EXPECT_EQ(packed_->packed_pages(), 1000u);
  EXPECT_EQ(file_.next_data(2000 * kPage), kBytes);
  for (unsigned i = 0; i < 200; i++) pack_all();  // each pass moves the pages of a block
  EXPECT_LT(packed_->pool_bytes(), full / 2);
  for (uint64_t i = 0; i < 2000; i++)
    ASSERT_EQ(read(i), page_of(i % 2 ? static_cast<uint32_t>(i) : 7, i % 2 ? 1500 : 200));
  EXPECT_EQ(read(2001), Page(kPage));
}

TEST_F(PackerTest, WhatDoesNotBecomeSmallerIsTriedOnce) {
  write(0, page_of(1, kPage));
  grow_cold();
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), 0u);
  EXPECT_EQ(packed_->pool_bytes(), 0u);
  EXPECT_EQ(read(0), page_of(1, kPage));
  write(0, page_of(1));
  grow_cold();
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), 1u);
}

TEST_F(PackerTest, PagesThatStayColdAreCompressedByZstd) {
  constexpr uint64_t kPages = 600;
  for (uint32_t i = 0; i < kPages; i++) write(i, text_of(i));
  grow_cold();
  pack_all();
  ASSERT_EQ(packed_->packed_pages(), kPages);
  EXPECT_EQ(packed_->zstd_pages(), 0u);
  uint64_t by_lz4 = packed_->pool_bytes();
  grow_stale();
  read(0);
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), kPages);
  EXPECT_EQ(packed_->zstd_pages(), kPages - 1);
  EXPECT_LT(packed_->pool_bytes(), by_lz4 * 4 / 5);
  for (uint32_t i = 0; i < kPages; i++) ASSERT_EQ(read(i), text_of(i)) << i;
}

TEST_F(PackerTest, PagesThatReturnOftenAreCompressedByLz4Again) {
  for (uint32_t i = 0; i < 2; i++) write(i, text_of(i));
  grow_cold();
  pack_all();
  grow_stale();
  pack_all();
  ASSERT_EQ(packed_->zstd_pages(), 2u);
  read(1);
  grow_stale(1);
  read(1);
  read(0);
  pack_all();
  EXPECT_EQ(packed_->zstd_pages(), 1u);
  for (uint32_t i = 0; i < 2; i++) EXPECT_EQ(read(i), text_of(i));
  grow_stale();
  pack_all();
  EXPECT_EQ(packed_->zstd_pages(), 2u);
}

TEST_F(PackerTest, WhereZstdSavesLittleItIsTriedOnce) {
  write(0, page_of(0, 1500));  // random bytes
  grow_cold();
  pack_all();
  grow_stale();
  EXPECT_TRUE(packed_->step().packed);
  pack_all();
  EXPECT_EQ(packed_->packed_pages(), 1u);
  EXPECT_EQ(packed_->zstd_pages(), 0u);
  EXPECT_FALSE(packed_->step().packed);
}

TEST_F(PackerTest, PagesThatOnlyZstdCanCompressWaitForIt) {
  write(0, text_of(0, false));
  grow_cold();
  pack_all();
  ASSERT_EQ(packed_->packed_pages(), 0u);
  grow_stale();
  pack_all();
  EXPECT_EQ(packed_->zstd_pages(), 1u);
  EXPECT_EQ(read(0), text_of(0, false));
}

TEST(Packer, EachServerHasItsCodecs) {
  for (Compression compression : {Compression::kLz4, Compression::kZstd}) {
    MemoryFile file;
    ASSERT_EQ(file.create(kBytes, compression), 0);
    Page text = text_of(1), back(kPage);
    ASSERT_EQ(file.write(0, text.data(), kPage), 0);
    for (unsigned i = 0; i < 2 * packed::kStaleAge * packed::PackedWord::kEpochsOfAge; i++) {
      file.packed()->advance_epoch();
      file.packed()->step();
    }
    EXPECT_EQ(file.packed()->packed_pages(), 1u);
    EXPECT_EQ(file.packed()->zstd_pages(), compression == Compression::kZstd);
    ASSERT_EQ(file.read(0, back.data(), kPage), 0);
    EXPECT_EQ(back, text);
  }
}

TEST_F(PackerTest, AFileThatIsFreedUsesNothing) {
  for (uint32_t i = 0; i < 100; i++) write(i, page_of(i));
  grow_cold();
  pack_all();
  while (file_.free_some(8 * kPage)) {}
  EXPECT_EQ(packed_->stored_bytes(), 0u);
}

TEST_F(PackerTest, WhatAClientWritesToTheTableHoldsNoRequestUp) {
  for (uint32_t i = 0; i < 4; i++) write(i, page_of(i));
  uint64_t bytes = packed::kTableOffset + kPage;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, packed_->fd(), 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* words = reinterpret_cast<uint64_t*>(static_cast<std::byte*>(at) + packed::kTableOffset);
  using packed::PackedWord;
  using packed::State;
  words[0] = PackedWord::in_pool(State::kPunching, 8, 8, 1).value();
  words[1] = PackedWord::in_pool(State::kPacked, packed::kMaxPoolBytes - 8, 4095, 1).value();
  words[2] = 7;
  words[3] = ~uint64_t{0};
  Page content(kPage);
  EXPECT_EQ(file_.read(kPage, content.data(), kPage), -EIO);
  EXPECT_EQ(file_.write(kPage, content.data(), 10), -EIO);
  grow_cold();
  pack_all();
  for (uint32_t i = 0; i < 4; i++) {
    write(i, page_of(i + 1));
    EXPECT_EQ(read(i), page_of(i + 1)) << i;
  }
  EXPECT_EQ(file_.punch(0, 4 * kPage), 0);
  EXPECT_EQ(packed_->packed_pages(), 0u);
  munmap(at, bytes);
}

TEST_F(PackerStress, NoPageIsLost) {
  uint64_t packed = 0, zstd = 0;
  use_all_pages([&](uint64_t) {
    packed = std::max(packed, packed_->packed_pages());
    zstd = std::max(zstd, packed_->zstd_pages());
  });
  EXPECT_GT(packed, kPagesOfThread / 4);
  EXPECT_GT(zstd, 0u);
}

TEST(PoolLog, PositionsDoNotOverlap) {
  PoolLog log(8 * PoolLog::kBlockBytes);
  std::vector<std::pair<uint64_t, size_t>> places;
  std::minstd_rand random(1);
  for (uint64_t page = 0;; page++) {
    size_t bytes = 1 + random() % 3000;
    uint64_t position = log.append(page, bytes);
    if (position == PoolLog::kNone) break;
    EXPECT_EQ(position % 8, 0u);
    EXPECT_EQ(position / PoolLog::kBlockBytes, (position + bytes - 1) / PoolLog::kBlockBytes);
    uint64_t end = places.empty() ? 0 : places.back().first + places.back().second;
    EXPECT_GE(position, end);
    places.emplace_back(position, bytes);
  }
  EXPECT_EQ(log.used_bytes(), 8 * PoolLog::kBlockBytes);
  for (auto [position, bytes] : places) log.release(position, bytes);
  EXPECT_EQ(log.live_bytes(), 0u);
  unsigned freed = 0;
  while (log.take_freed() != PoolLog::kNone) freed++;
  EXPECT_EQ(freed, 7u);  // all but the one that is being filled
  EXPECT_NE(log.append(1, 100), PoolLog::kNone);
}

}  // namespace
}  // namespace farside::server
