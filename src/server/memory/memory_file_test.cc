#include "server/memory/memory_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/os.h"
#include "server/memory/guarded.h"

namespace farside::server {
namespace {

constexpr uint64_t kPage = wire::kPageBytes;
constexpr uint64_t kSlab = wire::kSlabBytes;

std::vector<std::byte> page_of(int value) { return std::vector<std::byte>(kPage, static_cast<std::byte>(value)); }

std::vector<std::byte> read(const MemoryFile& file, uint64_t offset, uint64_t bytes) {
  std::vector<std::byte> out(bytes, std::byte{0xee});
  EXPECT_EQ(file.read(offset, out.data(), bytes), 0);
  return out;
}

uint64_t page_table_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPTE:")) return std::stoull(line.substr(6));
  }
  return 0;
}

class MemoryFileTest : public testing::Test {
 protected:
  MemoryFileTest() {
    EXPECT_EQ(file_.create(4 * kSlab), 0);
    for (uint64_t i = 0; i < 3; i++)
      EXPECT_EQ(file_.write(i * kPage, page_of(static_cast<int>(i) + 1).data(), kPage), 0);
  }
  MemoryFile file_;
};

TEST_F(MemoryFileTest, StoredPagesAreReadInPlace) {
  const std::byte* view = file_.view(0, 3 * kPage);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view[kPage], std::byte{2});
  EXPECT_EQ(file_.view(0, 3 * kPage + 1), nullptr);  // the last byte is in a hole
  EXPECT_EQ(file_.view(kSlab, 64), nullptr);
  EXPECT_EQ(file_.write(kPage + 7, page_of(9).data(), 64), 0);
  EXPECT_EQ(view[kPage + 7], std::byte{9});
  EXPECT_EQ(view[kPage + 7 + 64], std::byte{2});
}

TEST_F(MemoryFileTest, ReadsOfHolesStoreNothing) {
  EXPECT_EQ(file_.punch(kPage, kPage), 0);
  EXPECT_EQ(file_.view(kPage, kPage), nullptr);
  EXPECT_EQ(read(file_, kPage, kPage), page_of(0));
  EXPECT_EQ(read(file_, 2 * kSlab, kPage), page_of(0));
  EXPECT_EQ(read(file_, 2 * kPage, kPage), page_of(3));
  EXPECT_EQ(file_.stored_bytes(), 2 * kPage);
  EXPECT_EQ(file_.missing_bytes(0, 4 * kPage), 2 * kPage);
}

// In place of a page that the machine has lost: one that is behind the end of another file.
TEST_F(MemoryFileTest, APageThatCannotBeProvidedIsAnErrorOfOneAccess) {
  auto* lost = const_cast<std::byte*>(file_.view(kPage, kPage));
  ASSERT_NE(lost, nullptr);
  int empty = os::memfd_create("empty", MFD_CLOEXEC);
  ASSERT_EQ(::mmap(lost, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty, 0), lost);
  os::close(empty);
  std::byte byte{1};
  EXPECT_FALSE(guarded([&] { copy_shared(&byte, lost, 1); }));
  EXPECT_EQ(byte, std::byte{1});
  EXPECT_EQ(read(file_, kPage, kPage), page_of(2));  // by a system call, which returns an error where the page is lost
  EXPECT_EQ(file_.write(kPage, page_of(7).data(), kPage), 0);
  EXPECT_EQ(read(file_, 0, 3 * kPage)[kPage], std::byte{7});
  EXPECT_TRUE(guarded([&] { copy_shared(&byte, file_.view(2 * kPage, 1), 1); }));
  EXPECT_EQ(byte, std::byte{3});
}

TEST(MemoryFile, AFileThatAClientMapsIsNotReadInPlace) {
  MemoryFile file;
  ASSERT_EQ(file.create(kSlab), 0);
  file.note_shared();
  ASSERT_EQ(file.write(0, page_of(1).data(), kPage), 0);
  EXPECT_EQ(file.view(0, kPage), nullptr);
  EXPECT_EQ(read(file, 0, kPage), page_of(1));
}

// A client could store and discard one page of each slab in turn.
TEST(MemoryFile, DiscardedSlabsKeepNoPageTables) {
  constexpr uint64_t kSlabs = 2048;
  MemoryFile file;
  ASSERT_EQ(file.create(kSlabs * kSlab), 0);
  uint64_t before = page_table_kib();
  for (uint64_t i = 0; i < kSlabs; i++) {
    ASSERT_EQ(file.write(i * kSlab, page_of(1).data(), kPage), 0);
    ASSERT_EQ(read(file, i * kSlab, kPage), page_of(1));
  }
  uint64_t used = page_table_kib() - before;
  EXPECT_GE(used, kSlabs * 4);
  for (uint64_t i = 0; i < kSlabs; i++) ASSERT_EQ(file.punch(i * kSlab, kSlab), 0);
  EXPECT_LT(page_table_kib() - before, used / 8);
  ASSERT_EQ(file.write(0, page_of(2).data(), kPage), 0);
  EXPECT_NE(file.view(0, kPage), nullptr);
  EXPECT_EQ(read(file, 0, kPage), page_of(2));
}

}  // namespace
}  // namespace farside::server
