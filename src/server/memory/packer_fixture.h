// A memory file whose pages tests make cold and pack, and threads that use them beside it.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "server/memory/memory_file.h"

namespace farside::server {

inline constexpr uint64_t kPage = wire::kPageBytes;
inline constexpr uint64_t kBytes = 4 * wire::kSlabBytes;
using Page = std::vector<std::byte>;

// Of a few letters, which zstd alone can compress, or of words of these, which LZ4 can, too.
inline Page text_of(uint32_t seed, bool words = true) {
  Page page(kPage);
  std::minstd_rand random(seed + 1);
  auto letter = [](uint64_t n) { return static_cast<std::byte>('a' + n * n % 97 % 29); };
  for (size_t i = 0, word = 0; i < kPage; i++) {
    if (i % 7 == 0) word = (random() >> 8) % 96;
    page[i] = letter(words ? word * 7 + i % 7 : random() >> 8);
  }
  return page;
}

// Compresses to about `random_bytes`.
inline Page page_of(uint32_t seed, size_t random_bytes = 200) {
  Page page(kPage, static_cast<std::byte>(seed));
  std::minstd_rand random(seed + 1);
  for (size_t i = 0; i < random_bytes; i++) page[i] = static_cast<std::byte>(random() >> 8);
  return page;
}

class PackerTest : public testing::Test {
 protected:
  explicit PackerTest(std::unique_ptr<Overflow> overflow = nullptr) : overflow_(std::move(overflow)) {
    EXPECT_EQ(file_.create(kBytes, Compression::kAuto, overflow_.get()), 0);
    packed_ = file_.packed();
  }
  void write(uint64_t page, const Page& content) {
    ASSERT_EQ(file_.write(page * kPage, content.data(), content.size()), 0);
  }
  Page read(uint64_t page) {
    Page content(kPage);
    EXPECT_EQ(file_.read(page * kPage, content.data(), kPage), 0);
    return content;
  }
  void pack_all() {
    file_.settle_ram();
    if (overflow_) overflow_->begin_pass();
    while (packed_->step().more) {}
  }
  void grow_cold() {
    for (unsigned i = 0; i < packed::kColdEpochs; i++) packed_->advance_epoch();
  }
  void grow_stale(uint32_t age = packed::kStaleAge) {
    for (unsigned i = 0; i < age * packed::PackedWord::kEpochsOfAge; i++) packed_->advance_epoch();
  }
  const std::unique_ptr<Overflow> overflow_;
  MemoryFile file_;
  PackedFile* packed_;
};

// Each thread has pages of its own, as the pager has no two accesses to a page of which one is a write.
class PackerStress : public PackerTest {
 protected:
  using PackerTest::PackerTest;
  static constexpr uint64_t kThreads = 3, kPagesOfThread = 300, kUses = 20'000;

  // Packs while threads use the pages. After each pass calls look(uses by all of them).
  template <typename Look>
  void use_all_pages(Look look) {
    std::atomic<uint64_t> running{kThreads};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; t++) {
      threads.emplace_back([&, t] {
        use_pages(t);
        running--;
      });
    }
    for (unsigned i = 0; running > 0; i++) {
      if (i % 3 == 0) grow_stale();
      else grow_cold();
      pack_all();
      look(uses_);
    }
    for (auto& t : threads) t.join();
  }

  void use_pages(uint64_t thread) {
    std::minstd_rand random(static_cast<unsigned>(thread) + 1);
    std::vector<Page> expected(kPagesOfThread, Page(kPage));
    for (uint64_t i = 0; i < kUses; i++, uses_++) {
      uint64_t n = random() % kPagesOfThread;
      uint64_t page = n * kThreads + thread;
      size_t at = random() % kPage, bytes = std::min<size_t>(1 + random() % 500, kPage - at);
      switch (random() % 8) {
        case 0:
          expected[n] =
              random() % 2 ? page_of(random(), random() % (overflow_ ? kPage : 2500)) : text_of(random(), random() % 2);
          write(page, expected[n]);
          break;
        case 1: {
          Page part = page_of(random(), bytes);
          memcpy(&expected[n][at], part.data(), bytes);
          ASSERT_EQ(file_.write(page * kPage + at, part.data(), bytes), 0);
          break;
        }
        case 2:
          expected[n].assign(kPage, std::byte{0});
          ASSERT_EQ(file_.punch(page * kPage, kPage), 0);
          break;
        default:
          ASSERT_EQ(read(page), expected[n]) << page;
      }
    }
  }

  std::atomic<uint64_t> uses_{0};
};

}  // namespace farside::server
