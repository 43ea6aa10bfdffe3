#include "pager/size/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/bits.h"

namespace farside::pager {
namespace {

namespace fs = std::filesystem;

class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest() {
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n");
  }
  ~AvailableMemoryTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int64_t left() const { return AvailableMemory((root_ / "proc").string(), (root_ / "cgroup").string()).left(); }

  static constexpr auto kGib = static_cast<int64_t>(kGiB);
  fs::path root_ = fs::path(testing::TempDir()) / ("available_memory_test." + std::to_string(getpid()));
};

TEST_F(AvailableMemoryTest, IsWhatTheKernelCallsAvailable) { EXPECT_EQ(left(), 7 * kGib); }

TEST_F(AvailableMemoryTest, TheLowestLimitOfTheGroupAndThoseAboveCounts) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "1000\n");
  write("cgroup/a/memory.max", std::to_string(4 * kGib) + "\n");
  write("cgroup/a/memory.current", std::to_string(3 * kGib) + "\n");
  write("cgroup/a/memory.stat", "anon 5\ninactive_file " + std::to_string(kGib / 2) + "\n");
  EXPECT_EQ(left(), 4 * kGib - kGib / 4 - 3 * kGib + kGib / 2);
  write("cgroup/a/memory.current", std::to_string(5 * kGib) + "\n");
  EXPECT_LT(left(), 0);
}

TEST_F(AvailableMemoryTest, Version1) {
  write("proc/self/cgroup", "5:devices:/\n4:memory:/job\n0::/\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "1000\n");
  write("cgroup/memory/job/memory.limit_in_bytes", std::to_string(kGib) + "\n");
  write("cgroup/memory/job/memory.usage_in_bytes", std::to_string(kGib / 2) + "\n");
  EXPECT_EQ(left(), kGib - kGib / 16 - kGib / 2);
}

TEST_F(AvailableMemoryTest, ThisMachineHasSome) { EXPECT_NE(AvailableMemory().left(), 0); }

}  // namespace
}  // namespace farside::pager
