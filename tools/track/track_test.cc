#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/os.h"
#include "command/command.h"
#include "process/write_protection.h"
#include "tools/track/report.h"
#include "tools/track/track.h"
#include "tools/track/tracker.h"

namespace farside::track {
namespace {

using Page = std::array<std::byte, kPageSize>;

Page page_of(int value) {
  Page page;
  page.fill(static_cast<std::byte>(value));
  return page;
}

TEST(CompareTest, CountsBytesAndLines) {
  Page before = page_of(7), now = before;
  EXPECT_EQ(compare_page(before.data(), now.data()).bytes, 0U);
  for (size_t at : {0U, 1U, 63U, 64U, 4095U}) now[at] = std::byte{8};
  PageChange change = compare_page(before.data(), now.data());
  EXPECT_EQ(change.bytes, 5U);
  EXPECT_EQ(change.lines, (uint64_t{1} << 63) | 3);
  change = compare_page(before.data(), page_of(9).data());
  EXPECT_EQ(change.bytes, kPageSize);
  EXPECT_EQ(change.lines, ~uint64_t{0});
}

TEST(CompareTest, EveryChangedByteCounts) {
  Page before = page_of(0), now = before;
  for (int value = 0; value < 256; value++) now[static_cast<size_t>(value)] = static_cast<std::byte>(value);
  EXPECT_EQ(compare_page(before.data(), now.data()).bytes, 255U);
  EXPECT_EQ(compare_page(now.data(), before.data()).bytes, 255U);
}

TEST(ChangesTest, BlocksAreCountedOnceAndRunsWithinPages) {
  Changes changes;
  changes.add(0, {10, 0b1011});
  changes.add(kPageSize, {5, uint64_t{1} << 63});
  changes.add(kBlockSize - kPageSize, {kPageSize, ~uint64_t{0}});
  changes.add(3 * kBlockSize, {1, 1});
  changes.add(4 * kBlockSize, {0, 0});
  EXPECT_EQ(changes.bytes, 10 + 5 + kPageSize + 1);
  EXPECT_EQ(changes.dirty_bytes(64), (3 + 1 + 64 + 1) * 64U);
  EXPECT_EQ(changes.dirty_bytes(4096), 4 * 4096U);
  EXPECT_EQ(changes.dirty_bytes(kBlockSize), 2 * kBlockSize);
  EXPECT_EQ(changes.lines_per_page[0], 2U);
  EXPECT_EQ(changes.lines_per_page[2], 1U);
  EXPECT_EQ(changes.lines_per_page[63], 1U);
  EXPECT_EQ(changes.run_lengths[0], 3U);
  EXPECT_EQ(changes.run_lengths[1], 1U);
  EXPECT_EQ(changes.run_lengths[63], 1U);
  EXPECT_DOUBLE_EQ(changes.amplification(4096), 4 * 4096.0 / static_cast<double>(changes.bytes));
  EXPECT_EQ(Changes().amplification(64), 0);
}

TEST(ChangesTest, SharesAndQuantiles) {
  Histogram histogram = {};
  EXPECT_EQ(quantile_of(histogram, 0.5), 0U);
  EXPECT_EQ(cumulate(histogram)[63], 0);
  histogram[0] = 6;
  histogram[7] = 3;
  histogram[63] = 1;
  auto shares = cumulate(histogram);
  EXPECT_DOUBLE_EQ(shares[0], 0.6);
  EXPECT_DOUBLE_EQ(shares[62], 0.9);
  EXPECT_DOUBLE_EQ(shares[63], 1);
  EXPECT_EQ(quantile_of(histogram, 0.5), 1U);
  EXPECT_EQ(quantile_of(histogram, 0.7), 8U);
  EXPECT_EQ(quantile_of(histogram, 1), 64U);
}

TEST(SnapshotTest, KeepsContentsUpToItsLimit) {
  using Seen = Snapshot::Seen;
  Snapshot snapshot(2 * kPageSize);
  constexpr uint64_t kAt = 0x7f0000000000;
  EXPECT_EQ(snapshot.find(kAt).seen, Seen::kNever);
  snapshot.keep(kAt, page_of(0).data());
  EXPECT_EQ(snapshot.bytes(), 0U);
  EXPECT_EQ(snapshot.find(kAt).content[17], std::byte{0});
  for (uint64_t i = 1; i <= 3; i++) snapshot.keep(kAt + i * kPageSize, page_of(static_cast<int>(i)).data());
  EXPECT_EQ(snapshot.bytes(), 2 * kPageSize);
  EXPECT_EQ(snapshot.find(kAt + 2 * kPageSize).content[kPageSize - 1], std::byte{2});
  EXPECT_EQ(snapshot.find(kAt + 3 * kPageSize).seen, Seen::kWithoutContent);
  snapshot.keep(kAt + kPageSize, page_of(0).data());  // releases its slot
  snapshot.keep(kAt + 3 * kPageSize, page_of(3).data());
  EXPECT_EQ(snapshot.find(kAt + 3 * kPageSize).content[0], std::byte{3});
  EXPECT_EQ(snapshot.bytes(), 2 * kPageSize);
}

TEST(SnapshotTest, ForgetsUnmappedPages) {
  Snapshot snapshot(uint64_t{1} << 30);
  constexpr uint64_t kAt = 0x7f0000000000;
  for (uint64_t i = 0; i < 2000; i++) snapshot.keep(kAt + i * kPageSize, page_of(1).data());
  snapshot.forget(kAt + kPageSize, kAt + 600 * kPageSize);
  EXPECT_EQ(snapshot.bytes(), 1401 * kPageSize);
  EXPECT_EQ(snapshot.find(kAt).seen, Snapshot::Seen::kWithContent);
  EXPECT_EQ(snapshot.find(kAt + 599 * kPageSize).seen, Snapshot::Seen::kNever);
  EXPECT_EQ(snapshot.find(kAt + 600 * kPageSize).seen, Snapshot::Seen::kWithContent);
  Area kept;
  kept.begin = kAt + 1000 * kPageSize;
  kept.end = kAt + 1010 * kPageSize;
  snapshot.forget_all_but({kept});
  EXPECT_EQ(snapshot.bytes(), 10 * kPageSize);
  snapshot.forget_all_but({});
  EXPECT_EQ(snapshot.bytes(), 0U);
}

TEST(AreasTest, LinesOfMapsAreRead) {
  auto areas = process::parse_areas(
      "55d0-55e0 r-xp 00001000 08:01 77                         /usr/bin/a program\n"
      "6000-8000 rw-p 00002000 08:01 77                         /usr/bin/a program\n"
      "9000-a000 rw-p 00000000 00:00 0                          [heap]\n"
      "b000-c000 rw-p 00000000 00:00 0 \n"
      "c000-d000 rw-s 00000000 00:01 5                          /memfd:x (deleted)\n"
      "d000-e000 rw-s 00000000 08:01 6                          /home/data\n"
      "e000-f000 rw-s 00000000 00:05 7                          /dev/dri/card0\n"
      "f000-10000 r--p 00000000 08:01 8                         /usr/lib/c.so\n"
      "nonsense\n");
  ASSERT_EQ(areas.size(), 8U);
  EXPECT_EQ(areas[1].begin, 0x6000U);
  EXPECT_EQ(areas[1].offset, 0x2000U);
  EXPECT_EQ(areas[1].inode, 77U);
  EXPECT_EQ(areas[1].name, "/usr/bin/a program");
  EXPECT_TRUE(areas[0].executable);
  process::Backing expected[] = {process::Backing::kFile,   process::Backing::kFile,  process::Backing::kZeros,
                                 process::Backing::kZeros,  process::Backing::kZeros, process::Backing::kSharedFile,
                                 process::Backing::kDevice, process::Backing::kFile};
  for (size_t i = 0; i < areas.size(); i++) EXPECT_EQ(areas[i].backing, expected[i]) << i;

  auto tracked = process::areas_to_track(areas, {});
  ASSERT_EQ(tracked.size(), 5U);
  Area before = areas[7];  // was writable before
  EXPECT_EQ(process::areas_to_track(areas, {before}).size(), 6U);
}

Report some_report() {
  Report report;
  report.program = {"job"};
  report.method = "write-protect";
  for (int i = 0; i < 3; i++) {
    Window window;
    window.begin_seconds = i;
    window.seconds = 1;
    if (i != 1) window.changes.add(0, {8, 3});
    window.changes.written_pages = 2;
    report.windows.push_back(window);
  }
  return report;
}

TEST(ReportTest, AllOutputsAgree) {
  Report report = some_report();
  auto json = to_json(report);
  EXPECT_EQ(json["total"]["changed_bytes"], 16);
  EXPECT_EQ(json["total"]["dirty_bytes"]["64"], 256);
  EXPECT_EQ(json["total"]["amplification"]["4096"], 512.0);
  EXPECT_EQ(json["windows"][2]["run_lengths"][1], 1);
  EXPECT_TRUE(json["windows"][1]["amplification"]["64"].is_null());
  std::string csv = to_csv(report);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  for (size_t at = 0, end; (end = csv.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_EQ(std::count(csv.begin() + static_cast<long>(at), csv.begin() + static_cast<long>(end), ','), 12);
  }
  EXPECT_NE(csv.find("\n2.000,1.000,8,128,4096,2097152,16.0000,512.0000,262144.0000,2,"), std::string::npos) << csv;
  EXPECT_NE(summary(report).find("16 B changed in 3 windows"), std::string::npos);
  EXPECT_NE(summary(report).find("6 pages were written, 4 of them without a change"), std::string::npos);
  EXPECT_EQ(summary(report).find("given back"), std::string::npos);
  report.windows[0].minor_faults = 8193;
  report.windows[0].changes.written_pages = 1;
  EXPECT_EQ(report.unseen_pages(), 8192U);
  EXPECT_NE(summary(report).find("up to 32.0 MiB were touched and given back within a window"), std::string::npos)
      << summary(report);
  EXPECT_NE(to_svg(report).find("</svg>"), std::string::npos);
}

TEST(ReportTest, ColumnsAreAlignedWithTheirHeads) {
  std::string head = table_head();
  size_t first = head.find('\n');
  for (const Window& window : some_report().windows) {
    EXPECT_EQ(table_row(window).size(), first + 1);
    EXPECT_EQ(head.size(), 2 * (first + 1));
  }
}

// A child process that acts on letters, and replies to each with the same letter.
class Child {
 public:
  explicit Child(void (*act)(char)) {
    EXPECT_EQ(pipe(to_), 0);
    EXPECT_EQ(pipe(from_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(to_[1]);
    for (char order; read(to_[0], &order, 1) == 1;) {
      act(order);
      if (write(from_[1], &order, 1) != 1) break;
    }
    _exit(0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    for (int fd : {to_[0], to_[1], from_[0], from_[1]}) close(fd);
  }
  pid_t pid() const { return pid_; }
  void order(char what) {
    char answer = 0;
    EXPECT_EQ(write(to_[1], &what, 1), 1);
    EXPECT_EQ(read(from_[0], &answer, 1), 1);
  }

 private:
  pid_t pid_;
  int to_[2], from_[2];
};

TEST(TraceeTest, CallsTheKernelInTheProcessWhichContinues) {
  Child child([](char) {});
  auto tracee = Tracee::attach(child.pid());
  ASSERT_TRUE(tracee.ok()) << tracee.status().text();
  EXPECT_EQ((*tracee)->call(SYS_getpid, {0, 0, 0}), child.pid());
  EXPECT_EQ((*tracee)->call(SYS_close, {4000, 0, 0}), -EBADF);
  (*tracee)->resume();
  child.order('x');  // the interrupted read() was restarted
  EXPECT_TRUE((*tracee)->stop());
  EXPECT_EQ((*tracee)->call(SYS_getppid, {0, 0, 0}), getpid());
  (*tracee)->resume();
  child.order('y');
  EXPECT_GT((*tracee)->stopped_ns(), 0U);
  EXPECT_EQ((*tracee)->poll(), Tracee::Event::kNone);
}

TEST(TraceeTest, ReportsWhyItCannotAttach) {
  EXPECT_EQ(Tracee::attach(getpid()).status().code(), EINVAL);
  EXPECT_EQ(Tracee::attach(1 << 22).status().code(), ESRCH);
  std::atomic<pid_t> thread_id{0};
  std::atomic<bool> end{false};
  std::thread thread([&] {
    thread_id = os::gettid();
    while (!end) os::sched_yield();
  });
  while (thread_id == 0) os::sched_yield();
  EXPECT_NE(std::string(Tracee::attach(thread_id).status().text()).find("is a thread of"), std::string::npos);
  end = true;
  thread.join();
}

std::atomic<uint64_t>* g_counts;

TEST(TraceeTest, AllThreadsStop) {
  constexpr size_t kThreads = 3;
  g_counts = static_cast<std::atomic<uint64_t>*>(
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Child child([](char) {
    for (size_t i = 0; i < kThreads; i++) {
      std::thread([i] {
        while (true) g_counts[i * 8]++;
      }).detach();
    }
  });
  child.order('t');
  auto sum = [] {
    uint64_t all = 0;
    for (size_t i = 0; i < kThreads; i++) all += g_counts[i * 8];
    return all;
  };
  auto tracee = Tracee::attach(child.pid());
  ASSERT_TRUE(tracee.ok()) << tracee.status().text();
  (*tracee)->resume();
  for (int round = 0; round < 20; round++) {
    {
      AllStopped stopped(**tracee);
      ASSERT_TRUE(stopped.stopped());
      uint64_t before = sum();
      os::nanosleep_ns(2'000'000);
      EXPECT_EQ(sum(), before);
    }
    uint64_t before = sum();
    while (sum() == before) os::sched_yield();  // they continue
  }
  munmap(g_counts, kPageSize);
}

constexpr size_t kBlockPages = 3000;
unsigned char* g_block;
int g_file = -1;

void change_block(char order) {
  if (order == 'm') {
    g_block = static_cast<unsigned char*>(os::map_near(kBlockPages * kPageSize));
    for (size_t i = 0; i < kBlockPages; i++) g_block[i * kPageSize] = 1;
  }
  if (order == 'h') {  // absent forever: its handler never replies
    g_block = static_cast<unsigned char*>(os::map_near(kBlockPages * kPageSize));
    g_block[0] = 1;
    int uffd = os::open_userfaultfd(0, nullptr);
    if (os::uffd_register(uffd, g_block, kBlockPages * kPageSize, UFFDIO_REGISTER_MODE_MISSING) != 0) _exit(1);
  }
  if (order == 'f') {
    g_block = static_cast<unsigned char*>(
        ::mmap(nullptr, kBlockPages * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE, g_file, 0));
  }
  if (order == 'r') {
    for (size_t i = 0; i < kBlockPages; i++) (void)*(volatile unsigned char*)(g_block + i * kPageSize);
  }
  if (order == 'w') {
    for (size_t i = 0; i < kBlockPages; i += 2) g_block[i * kPageSize + 1000]++;
  }
  if (order == 'd') madvise(g_block, kBlockPages * kPageSize, MADV_DONTNEED);
  if (order == 'u') os::unmap(g_block, kBlockPages * kPageSize);
}

// Pages that the child's stack and variables may add.
constexpr uint64_t kNoisePages = 10;

class MethodsTest : public testing::TestWithParam<WriteTracker::Method> {
 protected:
  void SetUp() override {
    WriteTracker::Method method = GetParam();
    if (method == WriteTracker::Method::kSoftDirty && !process::keeps_soft_dirty())
      GTEST_SKIP() << "no soft-dirty bits here";
    if (method == WriteTracker::Method::kWriteProtect && process::write_fault_ns() == 0)
      GTEST_SKIP() << "no asynchronous protection";
  }

  // The changes caused by an action of the child.
  Changes changes_after(Child& child, Tracker& tracker, char order) {
    child.order(order);
    auto window = tracker.look();
    EXPECT_TRUE(window.ok()) << window.status().text();
    return window->changes;
  }
  void expect_about(uint64_t value, uint64_t expected) {
    EXPECT_GE(value, expected);
    EXPECT_LE(value, expected + kNoisePages);
  }
};

TEST_P(MethodsTest, KnownWritesAreReported) {
  WriteTracker::Method method = GetParam();
  Child child(change_block);
  auto tracee = Tracee::attach(child.pid());
  ASSERT_TRUE(tracee.ok()) << tracee.status().text();
  Tracker tracker(**tracee, kGiB);
  Status begun = tracker.begin(&method);
  ASSERT_TRUE(begun.ok()) << begun.text();
  (*tracee)->resume();
  expect_about(changes_after(child, tracker, '-').pages, 0);
  expect_about(changes_after(child, tracker, 'm').pages, kBlockPages);
  expect_about(changes_after(child, tracker, 'r').pages, 0);
  Changes changes = changes_after(child, tracker, 'w');
  expect_about(changes.pages, kBlockPages / 2);
  EXPECT_GE(changes.lines_per_page[0], kBlockPages / 2);
  if (method != WriteTracker::Method::kCompare) expect_about(changes.written_pages, kBlockPages / 2);
  expect_about(changes_after(child, tracker, 'd').pages, 0);  // discarding is no write
  if (method == WriteTracker::Method::kWriteProtect) {
    changes = changes_after(child, tracker, 'w');  // the previous content is zero
    expect_about(changes.pages, kBlockPages / 2);
    EXPECT_LE(changes.bytes, kBlockPages / 2 + kNoisePages * kPageSize);
    EXPECT_GE(changes.bytes, kBlockPages / 2);
  }
  changes_after(child, tracker, 'u');
  EXPECT_LT(tracker.snapshot_bytes(), kBlockPages * kPageSize);
}

TEST_P(MethodsTest, PrivateMappingsAreComparedWithTheirFile) {
  WriteTracker::Method method = GetParam();
  char name[] = "/tmp/farside-track-XXXXXX";
  g_file = mkstemp(name);
  ASSERT_GE(g_file, 0);
  Page page = page_of(77);
  for (size_t i = 0; i < kBlockPages; i++) ASSERT_EQ(write(g_file, page.data(), page.size()), ssize_t{kPageSize});
  Child child(change_block);
  auto tracee = Tracee::attach(child.pid());
  ASSERT_TRUE(tracee.ok()) << tracee.status().text();
  Tracker tracker(**tracee, kGiB);
  ASSERT_TRUE(tracker.begin(&method).ok());
  (*tracee)->resume();
  changes_after(child, tracker, 'f');
  expect_about(changes_after(child, tracker, 'r').pages, 0);
  Changes changes = changes_after(child, tracker, 'w');
  expect_about(changes.pages, kBlockPages / 2);
  EXPECT_LE(changes.bytes, kBlockPages / 2 + kNoisePages * kPageSize);
  EXPECT_EQ(changes.uncompared_pages, 0U);
  close(g_file);
  unlink(name);
}

TEST_P(MethodsTest, AreasWithHandlersAreOmitted) {
  WriteTracker::Method method = GetParam();
  Child child(change_block);
  auto tracee = Tracee::attach(child.pid());
  ASSERT_TRUE(tracee.ok()) << tracee.status().text();
  Tracker tracker(**tracee, kGiB);
  ASSERT_TRUE(tracker.begin(&method).ok());
  (*tracee)->resume();
  child.order('h');
  auto window = tracker.look();
  ASSERT_TRUE(window.ok()) << window.status().text();
  EXPECT_EQ(window->left_out_bytes, kBlockPages * kPageSize);
  expect_about(window->changes.pages, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MethodsTest,
                         testing::Values(WriteTracker::Method::kWriteProtect, WriteTracker::Method::kSoftDirty,
                                         WriteTracker::Method::kCompare));

TEST(TrackCommandTest, HelpHasExamplesAndMistakesAreOneLine) {
  auto track = [](std::vector<const char*> line) {
    line.insert(line.begin(), "farside-track");
    return run_track(static_cast<int>(line.size()), line.data());
  };
  testing::internal::CaptureStdout();
  EXPECT_EQ(track({"--help"}), 0);
  fflush(stdout);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("Examples:\n  farside track"), std::string::npos);
  for (const std::vector<const char*>& line :
       {std::vector<const char*>{}, {"-p", "1", "--", "true"}, {"--window", "0", "--", "true"}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(track(line), kExitUsage);
    std::string error = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(error.starts_with("farside: error: ") && error.find('\n') == error.size() - 1) << error;
  }
}

}  // namespace
}  // namespace farside::track
