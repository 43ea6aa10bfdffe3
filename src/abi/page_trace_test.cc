#include "abi/page_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace farside {
namespace {

class PageTraceTest : public testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "page_trace_test." + std::to_string(getpid());
  ~PageTraceTest() override { std::filesystem::remove(path_); }

  PageTrace record(const std::vector<uint64_t>& pages) {
    PageTraceWriter writer;
    EXPECT_TRUE(writer.open(path_).ok());
    for (uint64_t page : pages) writer.access(page);
    EXPECT_TRUE(writer.close().ok());
    Result<PageTrace> trace = read_page_trace(path_);
    EXPECT_TRUE(trace.ok()) << trace.status().text();
    return trace.ok() ? *trace : PageTrace();
  }
};

TEST_F(PageTraceTest, NumbersPagesByTheirFirstAccess) {
  PageTrace trace = record({1000, 7, uint64_t{1} << 50, 3});
  EXPECT_EQ(trace.accesses, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(trace.header.pages, 4u);
}

TEST_F(PageTraceTest, LeavesOutTheNearestPages) {
  std::vector<uint64_t> pages;
  for (int round = 0; round < 10; round++) {
    for (uint64_t page = 0; page < PageTraceWriter::kNearest; page++) pages.push_back(page);
  }
  PageTrace trace = record(pages);
  EXPECT_EQ(trace.accesses.size(), PageTraceWriter::kNearest);
  EXPECT_EQ(trace.header.seen, pages.size());
  pages.clear();
  for (int round = 0; round < 10; round++) {
    for (uint64_t page = 0; page <= PageTraceWriter::kNearest; page++) pages.push_back(page);
  }
  EXPECT_EQ(record(pages).accesses.size(), pages.size());  // one more page than the nearest: all are recorded
}

TEST_F(PageTraceTest, KeepsTheOrder) {
  std::mt19937 random(1);
  std::vector<uint64_t> pages;
  for (uint64_t page = 0; page < 70000; page++) pages.push_back(page);
  for (int i = 0; i < 100000; i++) pages.push_back(random() % 70000);
  PageTrace trace = record(pages);
  size_t at = 0;  // each recorded access is one of the program's, in order
  for (uint32_t page : trace.accesses) {
    while (at < pages.size() && pages[at] != page) at++;
    ASSERT_LT(at, pages.size());
    at++;
  }
  EXPECT_GT(trace.accesses.size(), 169000u);
}

TEST_F(PageTraceTest, FindsDamage) {
  EXPECT_FALSE(read_page_trace(path_ + ".absent").ok());
  record({1, 2, 3, 4, 5});
  auto size = std::filesystem::file_size(path_);
  for (size_t bytes = 0; bytes < size; bytes++) {
    std::filesystem::resize_file(path_, bytes);
    EXPECT_FALSE(read_page_trace(path_).ok()) << bytes;
    record({1, 2, 3, 4, 5});
  }
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary).seekp(sizeof(PageTraceHeader)).put('\x7f');
  EXPECT_FALSE(read_page_trace(path_).ok());
}

}  // namespace
}  // namespace farside
