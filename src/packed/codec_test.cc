#include "packed/codec.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace farside::packed {
namespace {

using Page = std::vector<std::byte>;

Page page_of(uint64_t word) {
  Page page(kPageBytes);
  for (size_t at = 0; at < kPageBytes; at += sizeof word) memcpy(&page[at], &word, sizeof word);
  return page;
}

Page random_page(unsigned seed, size_t random_bytes) {
  std::mt19937 random(seed);
  Page page(kPageBytes);
  for (size_t i = 0; i < random_bytes; i++) page[i] = static_cast<std::byte>(random());
  return page;
}

size_t pack(const Page& page, Page* out) {
  out->assign(kMaxPackedBytes, std::byte{0xee});
  return pack_page(page.data(), out->data());
}

void expect_round_trip(const Page& page) {
  Page packed, back(kPageBytes);
  size_t bytes = pack(page, &packed);
  ASSERT_GT(bytes, 0u);
  ASSERT_LE(bytes, kMaxPackedBytes);
  ASSERT_TRUE(unpack_page(packed.data(), bytes, back.data()));
  EXPECT_EQ(back, page);
}

TEST(Codec, APageOfOneWordIsThatWord) {
  for (uint64_t word : {uint64_t{0}, uint64_t{0x0123456789abcdef}}) {
    Page packed;
    EXPECT_EQ(pack(page_of(word), &packed), sizeof word);
    expect_round_trip(page_of(word));
  }
}

TEST(Codec, PagesComeBackAsTheyWere) {
  Page almost = page_of(7);
  almost.back() = std::byte{1};
  expect_round_trip(almost);
  for (unsigned seed = 0; seed < 50; seed++) expect_round_trip(random_page(seed, seed * 60));
}

TEST(Codec, WhatDoesNotBecomeSmallerIsRefused) {
  Page packed;
  EXPECT_EQ(pack(random_page(1, kPageBytes), &packed), 0u);
}

TEST(Codec, DamagedBytesAreRefusedOrGiveAPage) {
  Page packed, back(kPageBytes + 1, std::byte{0x55});
  size_t bytes = pack(random_page(3, 1000), &packed);
  std::mt19937 random(1);
  for (unsigned i = 0; i < 10'000; i++) {
    Page damaged(packed.begin(), packed.begin() + static_cast<ptrdiff_t>(random() % (bytes + 1)));
    for (unsigned n = random() % 4; n > 0 && !damaged.empty(); n--)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    unpack_page(damaged.data(), damaged.size(), back.data());
    ASSERT_EQ(back[kPageBytes], std::byte{0x55});
  }
  EXPECT_FALSE(unpack_page(packed.data(), bytes / 2, back.data()));
}

}  // namespace
}  // namespace farside::packed
