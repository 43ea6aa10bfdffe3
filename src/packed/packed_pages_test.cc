#include "packed/packed_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

#include "base/os.h"
#include "packed/codec.h"

namespace farside::packed {
namespace {

constexpr uint64_t kPages = 3 * kWordsInTablePage;
constexpr uint64_t kBytes = kPages * kPageBytes;

// A memory file in a vector.
class Memory final : public RawPages {
 public:
  int read(uint64_t offset, std::byte* to, size_t bytes) override {
    memcpy(to, &content[offset], bytes);
    return 0;
  }
  int write(uint64_t offset, const std::byte* from, size_t bytes) override {
    memcpy(&content[offset], from, bytes);
    return 0;
  }
  int punch(uint64_t offset, uint64_t bytes) override {
    memset(&content[offset], 0, bytes);
    return 0;
  }
  bool may_be_freeing() override { return freeing; }
  int read_overflow(uint64_t slot, std::byte* page) override {
    if (on_read) on_read();
    memcpy(page, &overflow[slot * kPageBytes], kPageBytes);
    return 0;
  }

  std::vector<std::byte> overflow = std::vector<std::byte>(8 * kPageBytes);
  std::function<void()> on_read;
  std::vector<std::byte> content = std::vector<std::byte>(kBytes);
  bool freeing = true;
};

class PackedPagesTest : public testing::Test {
 protected:
  PackedPagesTest() : fd_(os::memfd_create("packed", 0)) {
    EXPECT_EQ(os::ftruncate(fd_, static_cast<off_t>(file_bytes(kBytes))), 0);
    void* at = mmap(nullptr, file_bytes(kBytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    file_ = static_cast<std::byte*>(at);
    pages_ = PackedPages(file_, kBytes);
    pages_.advance_epoch();
  }
  ~PackedPagesTest() override {
    munmap(file_, file_bytes(kBytes));
    os::close(fd_);
  }
  void write(uint64_t offset, size_t bytes, int value) {
    std::vector<std::byte> content(bytes, static_cast<std::byte>(value));
    ASSERT_EQ(pages_.begin_write(memory_, offset, bytes, unpacker_), 0);
    memory_.write(offset, content.data(), bytes);
    pages_.end_write(offset, bytes);
  }
  std::vector<std::byte> read(uint64_t offset, size_t bytes) {
    std::vector<std::byte> out(bytes);
    EXPECT_EQ(pages_.read(memory_, offset, out.data(), bytes, unpacker_), 0);
    return out;
  }
  static std::vector<std::byte> bytes_of(int value, size_t bytes) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
  }
  // As the server does it, at a fixed place for each page.
  PackedWord pack(uint64_t page, State state = State::kPacked) {
    uint64_t position = page * 1024;
    size_t bytes = pack_page(&memory_.content[page * kPageBytes], file_ + pool_offset(kBytes) + position);
    PackedWord place = PackedWord::in_pool(state, position, static_cast<uint32_t>(bytes), 1);
    EXPECT_TRUE(pages_.change(page, pages_.load(page), place));
    pages_.count(1);
    memory_.punch(page * kPageBytes, kPageBytes);
    return place;
  }

  Memory memory_;
  int fd_;
  std::byte* file_;
  PackedPages pages_;
  Unpacker unpacker_;
};

TEST_F(PackedPagesTest, PagesAreReadFromWhereTheyAre) {
  write(0, 3 * kPageBytes, 5);
  pack(1);
  EXPECT_EQ(pages_.packed_pages(), 1u);
  EXPECT_EQ(memory_.content[kPageBytes], std::byte{0});
  EXPECT_EQ(read(0, 3 * kPageBytes), bytes_of(5, 3 * kPageBytes));
  EXPECT_EQ(read(kPageBytes - 10, 20), bytes_of(5, 20));
  EXPECT_EQ(read(5 * kPageBytes, 20), bytes_of(0, 20));
  EXPECT_TRUE(pages_.load(1).is(State::kPacked));  // a read does not bring it back
}

TEST_F(PackedPagesTest, AWholePageThatIsWrittenLeavesThePool) {
  write(0, kPageBytes, 5);
  pack(0);
  write(0, kPageBytes, 6);
  EXPECT_EQ(pages_.packed_pages(), 0u);
  EXPECT_TRUE(pages_.load(0).is(State::kRaw));
  EXPECT_EQ(read(0, kPageBytes), bytes_of(6, kPageBytes));
}

TEST_F(PackedPagesTest, AWriteOfAPartKeepsTheRest) {
  write(0, 2 * kPageBytes, 5);
  pack(0);
  pack(1);
  write(kPageBytes - 8, 16, 7);
  EXPECT_EQ(pages_.packed_pages(), 0u);
  EXPECT_EQ(read(0, kPageBytes - 8), bytes_of(5, kPageBytes - 8));
  EXPECT_EQ(read(kPageBytes - 8, 16), bytes_of(7, 16));
  EXPECT_EQ(read(kPageBytes + 8, kPageBytes - 8), bytes_of(5, kPageBytes - 8));
}

TEST_F(PackedPagesTest, DiscardedPagesAreZeroWhereverTheyWere) {
  write(0, 4 * kPageBytes, 5);
  write((kPages - 2) * kPageBytes, 2 * kPageBytes, 5);
  for (uint64_t page : {uint64_t{1}, uint64_t{3}, kPages - 1}) pack(page);
  ASSERT_EQ(pages_.discard(memory_, fd_, 0, (kPages - 1) * kPageBytes, unpacker_), 0);
  EXPECT_EQ(read(0, 4 * kPageBytes), bytes_of(0, 4 * kPageBytes));
  EXPECT_EQ(pages_.packed_pages(), 1u);
  EXPECT_EQ(read((kPages - 1) * kPageBytes, kPageBytes), bytes_of(5, kPageBytes));
  for (uint64_t page = 0; page < 4; page++) EXPECT_EQ(pages_.load(page), PackedWord());

  ASSERT_EQ(pages_.discard(memory_, fd_, (kPages - 1) * kPageBytes + 100, 50, unpacker_), 0);
  EXPECT_EQ(read((kPages - 1) * kPageBytes, 100), bytes_of(5, 100));
  EXPECT_EQ(read((kPages - 1) * kPageBytes + 100, 50), bytes_of(0, 50));
}

TEST_F(PackedPagesTest, AccessesCancelThePacking) {
  write(0, 2 * kPageBytes, 5);
  for (uint64_t page : {0, 1})
    ASSERT_TRUE(pages_.change(page, pages_.load(page), pages_.load(page).with(State::kPacking)));
  pages_.advance_epoch();
  EXPECT_EQ(read(0, 8), bytes_of(5, 8));
  write(kPageBytes, 8, 6);
  EXPECT_EQ(pages_.load(0), PackedWord::in_memory(State::kRaw, 2));
  EXPECT_EQ(pages_.load(1), PackedWord::in_memory(State::kRaw, 2));
}

TEST_F(PackedPagesTest, ReadersDoNotWaitForThePackerAndWritersDoNotWhereItHasEnded) {
  write(0, kPageBytes, 5);
  pack(0, State::kPunching);
  EXPECT_EQ(read(0, kPageBytes), bytes_of(5, kPageBytes));
  memory_.freeing = false;
  write(10, 1, 6);
  EXPECT_EQ(read(0, 10), bytes_of(5, 10));
  EXPECT_EQ(read(10, 1), bytes_of(6, 1));
}

TEST_F(PackedPagesTest, PagesOfBothCodecsAreRead) {
  write(0, kPageBytes, 5);
  write(100, 200, 6);
  ZstdPacker zstd;
  std::vector<std::byte> packed(kMaxPackedBytes), content = read(0, kPageBytes);
  size_t bytes = zstd.pack(content.data(), packed.data());
  memcpy(file_ + pool_offset(kBytes) + 8, packed.data(), bytes);
  ASSERT_TRUE(
      pages_.change(0, pages_.load(0), PackedWord::in_pool(State::kPacked, 8, static_cast<uint32_t>(bytes), 0, true)));
  EXPECT_EQ(read(0, kPageBytes), content);
  EXPECT_EQ(read(90, 20), std::vector<std::byte>(content.begin() + 90, content.begin() + 110));
  write(0, 8, 7);
  EXPECT_EQ(read(299, 2), std::vector<std::byte>(content.begin() + 299, content.begin() + 301));
}

// Of LZ4 the last use, of zstd whether there were two in a minute.
TEST_F(PackedPagesTest, ReadsOfCompressedPagesAreNoted) {
  write(0, 2 * kPageBytes, 5);
  PackedWord place = pack(0), zstd = pack(1, State::kPunching);
  auto pass = [&](uint32_t age) {
    for (uint32_t i = 0; i < age * PackedWord::kEpochsOfAge; i++) pages_.advance_epoch();
  };
  auto age = [&](uint64_t page) { return pages_.load(page).age(pages_.epoch()); };
  pass(kStaleAge);
  EXPECT_EQ(age(0), kStaleAge);
  read(0, 8);
  read(kPageBytes, 8);
  EXPECT_EQ(age(0), 0u);
  EXPECT_TRUE(pages_.load(0).is_at_place_of(place));
  EXPECT_EQ(pages_.load(1), zstd);  // the packer is changing it
  PackedWord again = PackedWord::in_pool(State::kPacked, zstd.position(), zstd.bytes(), 3, true);
  ASSERT_TRUE(pages_.change(1, zstd, again));
  read(kPageBytes, 8);
  EXPECT_FALSE(pages_.load(1).is_marked());
  read(kPageBytes, 8);
  EXPECT_FALSE(pages_.load(1).is_marked());  // at the same time
  pass(1);
  read(kPageBytes, 8);
  EXPECT_TRUE(pages_.load(1).is_marked());
  EXPECT_TRUE(pages_.load(1).is_at_place_of(again));
}

TEST_F(PackedPagesTest, PagesInTheOverflowFileAreRead) {
  write(0, kPageBytes, 5);
  PackedWord place = PackedWord::in_overflow(State::kPacked, 7, 1).used_at(700);
  EXPECT_TRUE(place.is_in_overflow());
  EXPECT_EQ(place.slot(), 7u);
  memset(&memory_.overflow[7 * kPageBytes], 6, kPageBytes);
  ASSERT_TRUE(pages_.change(0, pages_.load(0), place));
  pages_.count(1);
  EXPECT_EQ(read(0, kPageBytes), bytes_of(6, kPageBytes));
  EXPECT_FALSE(pages_.load(0).is_marked());
  EXPECT_EQ(read(10, 20), bytes_of(6, 20));
  EXPECT_TRUE(pages_.load(0).is_marked());
  EXPECT_TRUE(pages_.load(0).is_at_place_of(place));
  write(10, 20, 7);
  EXPECT_EQ(read(0, 10), bytes_of(6, 10));
  EXPECT_EQ(read(10, 20), bytes_of(7, 20));
  EXPECT_EQ(pages_.packed_pages(), 0u);
}

// The packer brings the page back, and to the same place again, while it is read: the slot had something else
// meanwhile.
TEST_F(PackedPagesTest, APageThatReturnsWhileItIsReadIsReadAgain) {
  write(0, kPageBytes, 5);
  PackedWord place = PackedWord::in_overflow(State::kPacked, 7, 1);
  ASSERT_TRUE(pages_.change(0, pages_.load(0), place));
  pages_.count(1);
  memset(&memory_.overflow[7 * kPageBytes], 9, kPageBytes);
  memory_.on_read = [&] {
    if (pages_.returns(0)++ == 0) return;
    memset(&memory_.overflow[7 * kPageBytes], 5, kPageBytes);
    memory_.on_read = nullptr;
  };
  EXPECT_EQ(read(0, kPageBytes), bytes_of(5, kPageBytes));
}

TEST_F(PackedPagesTest, DamageIsAnError) {
  write(0, kPageBytes, 5);
  write(8, 8, 6);
  PackedWord place = pack(0);
  memset(file_ + pool_offset(kBytes) + place.position(), 0xff, place.bytes());
  std::byte to[kPageBytes];
  EXPECT_EQ(pages_.read(memory_, 0, to, sizeof to, unpacker_), -EIO);
  EXPECT_EQ(pages_.begin_write(memory_, 0, 8, unpacker_), -EIO);
  PackedWord outside = PackedWord::in_pool(State::kPacked, pool_bytes(kBytes) - 8, 16, 1);
  ASSERT_TRUE(pages_.change(0, place, outside));
  EXPECT_EQ(pages_.read(memory_, 0, to, sizeof to, unpacker_), -EIO);
}

// As a hostile client can make it: a read ends, with an error or with one of the contents.
TEST_F(PackedPagesTest, ReadsOfAWordThatChangesWithoutEndReturn) {
  write(0, kPageBytes, 5);
  PackedWord place = pack(0);
  PackedWord other = PackedWord::in_pool(State::kPacked, place.position(), place.bytes(), 2);
  std::atomic<bool> stop{false};
  std::thread restless([&] {
    while (!stop) pages_.change(0, place, other) || pages_.change(0, other, place);
  });
  for (unsigned i = 0; i < 200; i++) {
    std::byte to[kPageBytes];
    int r = pages_.read(memory_, 0, to, sizeof to, unpacker_);
    EXPECT_TRUE(r == -EIO || (r == 0 && to[7] == std::byte{5})) << r;
  }
  stop = true;
  restless.join();
}

TEST_F(PackedPagesTest, EpochsAreNeverZero) {
  for (unsigned i = 0; i < 3 * PackedWord::kEpochs; i++) {
    EXPECT_GE(pages_.epoch(), PackedWord::kFirstEpoch);
    EXPECT_LE(pages_.epoch(), PackedWord::kLastEpoch);
    pages_.advance_epoch();
  }
}

}  // namespace
}  // namespace farside::packed
