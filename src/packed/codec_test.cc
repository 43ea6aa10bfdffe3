#include "packed/codec.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace farside::packed {
namespace {

using Page = std::vector<std::byte>;

// As another process changes shared memory: sanitizers do not look.
__attribute__((no_sanitize("thread"))) void copy_racing(Page& to, const Page& from) {
  volatile std::byte* at = to.data();
  for (size_t i = 0; i < kMaxPackedBytes; i++) at[i] = from[i];
}

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

// With both codecs.
class CodecTest : public testing::TestWithParam<Codec> {
 protected:
  size_t pack(const Page& page, Page* out) {
    out->assign(kMaxPackedBytes, std::byte{0xee});
    return GetParam() == Codec::kZstd ? zstd_.pack(page.data(), out->data()) : pack_page(page.data(), out->data());
  }
  bool unpack(const Page& from, size_t bytes, Page* page) {
    return unpacker_.unpack(GetParam(), from.data(), bytes, page->data());
  }
  void expect_round_trip(const Page& page) {
    Page packed, back(kPageBytes);
    size_t bytes = pack(page, &packed);
    ASSERT_GT(bytes, 0u);
    ASSERT_LE(bytes, kMaxPackedBytes);
    ASSERT_TRUE(unpack(packed, bytes, &back));
    EXPECT_EQ(back, page);
  }
  ZstdPacker zstd_;
  Unpacker unpacker_;
};
INSTANTIATE_TEST_SUITE_P(Codecs, CodecTest, testing::Values(Codec::kLz4, Codec::kZstd));

TEST(Codec, APageOfOneWordIsThatWord) {
  for (uint64_t word : {uint64_t{0}, uint64_t{0x0123456789abcdef}}) {
    Page packed(kMaxPackedBytes), back(kPageBytes);
    EXPECT_EQ(pack_page(page_of(word).data(), packed.data()), sizeof word);
    ASSERT_TRUE(Unpacker().unpack(Codec::kLz4, packed.data(), sizeof word, back.data()));
    EXPECT_EQ(back, page_of(word));
  }
}

TEST_P(CodecTest, PagesComeBackAsTheyWere) {
  Page almost = page_of(7);
  almost.back() = std::byte{1};
  expect_round_trip(almost);
  for (unsigned seed = 0; seed < 50; seed++) expect_round_trip(random_page(seed, seed * 60));
}

TEST_P(CodecTest, WhatDoesNotBecomeSmallerIsRefused) {
  Page packed;
  EXPECT_EQ(pack(random_page(1, kPageBytes), &packed), 0u);
}

TEST_P(CodecTest, DamagedBytesAreRefusedOrGiveAPage) {
  Page packed, back(kPageBytes + 1, std::byte{0x55});
  size_t bytes = pack(random_page(3, 1000), &packed);
  std::mt19937 random(1);
  for (unsigned i = 0; i < 10'000; i++) {
    Page damaged(packed.begin(), packed.begin() + static_cast<ptrdiff_t>(random() % (bytes + 1)));
    for (unsigned n = random() % 4; n > 0 && !damaged.empty(); n--)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    unpack(damaged, damaged.size(), &back);
    ASSERT_EQ(back[kPageBytes], std::byte{0x55});
  }
  EXPECT_FALSE(unpack(packed, bytes / 2, &back));
}

// The server may move something else there meanwhile, and a hostile client may do so at any time.
TEST_P(CodecTest, BytesThatChangeMeanwhileAreRefusedOrGiveAPage) {
  Page packed, other, back(kPageBytes + 1, std::byte{0x55});
  size_t bytes = std::min(pack(random_page(3, 1000), &packed), pack(random_page(4, 1400), &other));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (bool turn = false; !stop; turn = !turn) copy_racing(packed, turn ? random_page(3, 1000) : other);
  });
  for (unsigned i = 0; i < 20'000; i++) {
    unpack(packed, bytes, &back);
    ASSERT_EQ(back[kPageBytes], std::byte{0x55});
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace farside::packed
