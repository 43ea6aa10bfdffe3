#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "base/bits.h"
#include "base/core_sharing.h"
#include "base/near.h"
#include "base/os.h"
#include "base/service_thread.h"
#include "base/size.h"
#include "base/status.h"
#include "base/sync.h"

namespace farside {
namespace {

TEST(Size, ParsesSizesAndShares) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("256M"), 256 * kMiB);
  EXPECT_EQ(*parse_size("1.5g"), kGiB + kGiB / 2);
  EXPECT_EQ(*parse_size("8GiB"), 8 * kGiB);
  EXPECT_EQ(parse_size_or_share("25%")->share, 0.25);
  EXPECT_EQ(parse_size_or_share("1M")->bytes, kMiB);
  EXPECT_TRUE(parse_size_or_share("auto")->is_automatic());
  EXPECT_EQ(*parse_size_or_share("auto:1M-2M"), (SizeOrShare{2 * kMiB, SizeOrShare::kAutomatic, kMiB}));
}

TEST(Size, RejectsInvalidTextWithAMessage) {
  for (const char* bad : {"", "M", "12Q", "1.2.3", "-5", "5 M", "99999999999T"}) {
    Result<uint64_t> r = parse_size(bad);
    EXPECT_FALSE(r.ok()) << bad;
    EXPECT_STRNE(r.status().text(), "");
  }
  for (const char* bad : {"0%", "101%", "%", "x%", "5%%", "auto:1M", "auto:-", "auto:2M-1M"})
    EXPECT_FALSE(parse_size_or_share(bad).ok()) << bad;
}

TEST(Size, FormatsSizes) {
  EXPECT_EQ(format_size(7), "7 B");
  EXPECT_EQ(format_size(kGiB + kGiB / 2), "1.50 GiB");
}

TEST(Status, HoldsCodeAndText) {
  Status s = Status::error(ENOENT, "cannot open {}: try {}", "a", 5);
  EXPECT_EQ(s.code(), ENOENT);
  EXPECT_STREQ(s.text(), "cannot open a: try 5");
  EXPECT_TRUE(Status().ok());
}

TEST(Status, TruncatesLongTexts) {
  std::string longer(1000, 'x');
  EXPECT_LT(strlen(Status::error(EIO, "{}", longer).text()), 252u);
}

TEST(Near, ReturnsZeroedAlignedMemory) {
  for (size_t bytes : {1, 16, 100, 4096, 5000, 65536, 65537, 1 << 20}) {
    auto* memory = static_cast<unsigned char*>(near_alloc(bytes));
    EXPECT_TRUE(is_aligned(reinterpret_cast<uintptr_t>(memory), bytes >= kPageSize ? kPageSize : 16));
    for (size_t i = 0; i < bytes; i++) ASSERT_EQ(memory[i], 0);
    memset(memory, 0xff, bytes);
    near_free(memory, bytes);
  }
  EXPECT_GT(near_bytes(), 0u);
}

TEST(Near, WorksWithContainersAndThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([] {
      std::map<int, int, std::less<>, NearAllocator<std::pair<const int, int>>> m;
      for (int i = 0; i < 2000; i++) m[i * 7919 % 1000] = i;
      EXPECT_EQ(m.size(), 1000u);
    });
  }
  for (auto& t : threads) t.join();
}

TEST(Sync, MutexExcludes) {
  Mutex mutex;
  int counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; i++) {
        LockGuard guard(mutex);
        counter++;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(counter, 40000);
}

TEST(Sync, EventWakesSleepers) {
  Event event;
  uint32_t seen = event.value();
  std::thread waiter([&] {
    while (event.value() == seen) event.wait(seen, 5000000000);
  });
  event.wake_all();
  waiter.join();
}

TEST(CoreSharing, LongYieldsMarkTheMachineAsCrowded) {
  CoreSharing tolerant(1'000'000'000), strict(0);
  EXPECT_FALSE(strict.is_crowded());
  tolerant.yield();
  strict.yield();
  EXPECT_FALSE(tolerant.is_crowded());
  EXPECT_TRUE(strict.is_crowded());
}

TEST(Os, ReturnsNegativeErrno) {
  EXPECT_EQ(os::open("/does/not/exist", 0), -ENOENT);
  EXPECT_EQ(os::close(-1), -EBADF);
  EXPECT_EQ(os::getpid(), getpid());
  EXPECT_GT(os::syscall_text().size(), 10u);
  EXPECT_LT(os::syscall_text().size(), 4096u);
}

TEST(Os, MovesDescriptorsToHighNumbers) {
  int fd = os::move_fd_high(os::open("/dev/null", 0));
  EXPECT_GT(fd, 100);
  EXPECT_EQ(os::close(fd), 0);
}

// The program may have lowered the limit, and uses all numbers below.
TEST(Os, MovesDescriptorsAboveALoweredLimit) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 1024) GTEST_SKIP() << "the hard limit is low";
  rlimit low = {50, before.rlim_max}, after;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  int fd = os::move_fd_high(os::open("/dev/null", 0));
  EXPECT_GT(fd, 500);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, 50u);
  EXPECT_EQ(os::close(fd), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

thread_local int t_number = 17;

struct ServiceWork {
  std::atomic<int> runs{0}, tid{0};
  std::atomic<os::SignalSet> mask{0};
  std::atomic<int> number{0};  // its thread-local variable, as it found it

  static void run(void* argument) {
    auto& work = *static_cast<ServiceWork*>(argument);
    work.number.store(t_number++);
    os::SignalSet mask = 0;
    os::sigprocmask(SIG_SETMASK, nullptr, &mask);
    work.mask.store(mask);
    work.tid.store(os::gettid());
    work.runs.fetch_add(1);
  }
};

TEST(ServiceThread, HasStorageOfItsOwnAndBlocksSignals) {
  ServiceThread thread;
  ServiceWork work;
  t_number = 99;
  for (int round = 1; round <= 3; round++) {
    ASSERT_EQ(thread.start(ServiceWork::run, &work), 0);
    thread.join();
    EXPECT_EQ(work.runs.load(), round);
    EXPECT_NE(work.tid.load(), os::gettid());
    EXPECT_NE(work.mask.load() & os::signal_bit(SIGUSR1), 0u);
    EXPECT_TRUE(os::thread_is_gone(os::getpid(), work.tid.load()));
  }
  EXPECT_GE(work.number.load(), 17);
  EXPECT_LT(work.number.load(), 20);  // never the 99 of this thread
  EXPECT_EQ(t_number, 99);
}

TEST(ServiceThread, ManyRunAtTheSameTime) {
  ServiceThread threads[8];
  ServiceWork work;
  for (ServiceThread& thread : threads) ASSERT_EQ(thread.start(ServiceWork::run, &work), 0);
  for (ServiceThread& thread : threads) thread.join();
  EXPECT_EQ(work.runs.load(), 8);
}

TEST(ServiceThread, StartsAgainInTheChildOfAFork) {
  ServiceThread thread;
  ServiceWork work;
  ASSERT_EQ(thread.start(ServiceWork::run, &work), 0);
  thread.join();
  pid_t child = fork();
  if (child == 0) {
    thread.reset_in_child();
    bool started = thread.start(ServiceWork::run, &work) == 0;
    if (started) thread.join();
    _exit(started && work.runs.load() == 2 && work.number.load() == 17 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(MessageTest, IdentifiersAreAppended) {
  EXPECT_STREQ(Status::error(EIO, "{} has not responded for {} s", "it", 3).text(),
               "it has not responded for 3 s [F201]");
  EXPECT_STREQ(Status::error(EIO, "nothing known").text(), "nothing known");
  // A message that contains another one has that one's identifier already.
  EXPECT_STREQ(Status::error(EIO, "{}", "a [F201]").text(), "a [F201]");
}

TEST(MessageTest, AnIdentifierIsNotCut) {
  Status cut = Status::error(EIO, "{} has not responded for long", std::string(1000, 'x'));
  EXPECT_TRUE(std::string_view(cut.text()).ends_with("x [F201]"));
  EXPECT_EQ(strlen(cut.text()), 251u);
  char little[4] = "abc";
  EXPECT_EQ(append_id(little, 3, sizeof little, "F201"), 3u);
}

}  // namespace
}  // namespace farside
