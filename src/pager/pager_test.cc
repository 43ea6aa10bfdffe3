#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "pager/pages/lines.h"
#include "pager/test_support.h"

namespace farside::pager {
namespace {

constexpr uint64_t kSpace = 1 * kGiB;

Options small_options() {
  Options o;
  o.local = {8 * kMiB, 0};
  o.space = kSpace;
  return o;
}

struct Case {
  Delivery delivery;
  bool direct;
  PolicyKind policy;
  unsigned evictors;
  WriteBack writeback = WriteBack::kAuto;
};

class PagerTest : public testing::TestWithParam<Case> {
 protected:
  PagerTest() : pager_(options(), new LocalStore(kSpace, kSpace, GetParam().direct), GetParam().delivery) {}
  static Options options() {
    Options o = small_options();
    o.policy = GetParam().policy;
    o.evictors = GetParam().evictors;
    o.writeback = GetParam().writeback;
    return o;
  }
  PagerFixture pager_;
};

TEST_P(PagerTest, UntouchedMemoryReadsAsZero) {
  constexpr size_t kBytes = 32 * kMiB;
  auto* memory = reinterpret_cast<volatile uint64_t*>(pager_.allocate(kBytes));
  for (size_t i = 0; i < kBytes / 8; i += 64) ASSERT_EQ(memory[i], 0u) << i;
  Stats s = pager_->stats();
  EXPECT_EQ(s.get(Counter::kDirtyEvictions), 0u);  // zeros are never written back
  EXPECT_LE(s.near_peak_pages, s.limit_pages);
}

TEST_P(PagerTest, KeepsWhatWasWritten) {
  constexpr size_t kWords = 64 * kMiB / 8;
  auto* memory = reinterpret_cast<volatile uint64_t*>(pager_.allocate(kWords * 8));
  for (size_t i = 0; i < kWords; i++) memory[i] = i * 2654435761u;
  for (size_t i = 0; i < kWords; i++) ASSERT_EQ(memory[i], i * 2654435761u) << i;
  Stats s = pager_->stats();
  EXPECT_GT(s.get(Counter::kDirtyEvictions), 10000u);
  EXPECT_GT(s.get(Counter::kReads), 100u);
  EXPECT_GT(s.get(Counter::kPrefetched), s.get(Counter::kMajorFaults));
  EXPECT_LE(s.near_peak_pages, s.limit_pages);
}

struct SlowObserver : PageObserver {
  void on_evict(std::span<const PageIndex>) override {
    calls.fetch_add(1);
    os::nanosleep_ns(1'000'000);
    ended.fetch_add(1);
  }
  std::atomic<int> calls{0}, ended{0};
};

TEST_P(PagerTest, ARemovedObserverIsNotInUse) {
  constexpr size_t kBytes = 64 * kMiB;
  auto* memory = reinterpret_cast<volatile std::byte*>(pager_.allocate(kBytes));
  pager_->paging().mark_objects(const_cast<std::byte*>(memory), kBytes);
  size_t at = 0;
  for (int round = 0; round < 20; round++) {
    SlowObserver observer;
    pager_->evictors().set_observer(&observer);
    for (; observer.calls.load() == 0; at = (at + kPageSize) % kBytes) memory[at] = std::byte{1};
    pager_->evictors().set_observer(nullptr);
    EXPECT_EQ(observer.ended.load(), observer.calls.load());
  }
}

TEST_P(PagerTest, CleanPagesAreNotWrittenAgain) {
  constexpr size_t kPages = 16 * kMiB / kPageSize;
  std::byte* memory = pager_.allocate(kPages * kPageSize);
  for (size_t i = 0; i < kPages; i++) memory[i * kPageSize] = std::byte{1};
  std::mt19937_64 random(1);
  auto read_all = [&] {
    for (size_t i = 0; i < 4 * kPages; i++) ASSERT_EQ(memory[random() % kPages * kPageSize], std::byte{1});
  };
  read_all();
  uint64_t written = pager_->stats().get(Counter::kBytesWritten);
  uint64_t evicted = pager_->stats().get(Counter::kEvictions);
  read_all();
  EXPECT_EQ(pager_->stats().get(Counter::kBytesWritten), written);
  EXPECT_GT(pager_->stats().get(Counter::kEvictions), evicted + kPages / 4);
}

TEST_P(PagerTest, FirstWriteToACleanPageIsSeen) {
  constexpr size_t kPages = 16 * kMiB / kPageSize;
  auto* memory = reinterpret_cast<volatile uint32_t*>(pager_.allocate(kPages * kPageSize));
  auto at = [&](size_t page) -> volatile uint32_t& { return memory[page * (kPageSize / 4)]; };
  for (uint32_t round = 0; round < 4; round++) {
    for (size_t i = 0; i < kPages; i++) {
      size_t page = i * 7919 % kPages;  // no stride to follow
      uint32_t before = at(page);       // fetched clean
      ASSERT_EQ(before, round);
      at(page) = before + 1;  // write-protection fault
    }
  }
  EXPECT_GT(pager_->stats().get(Counter::kProtectionFaults), kPages);
}

TEST_P(PagerTest, AWriteAfterAReadIsPresumedUntilItDoesNotFollow) {
  constexpr size_t kPages = 16 * kMiB / kPageSize;
  auto* memory = reinterpret_cast<volatile uint64_t*>(pager_.allocate(kPages * kPageSize));
  std::vector<size_t> order(kPages);  // no stride to follow
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  uint64_t round = 0;
  auto walk = [&](bool write) {
    for (size_t page : order) {
      volatile uint64_t& word = memory[page * (kPageSize / 8)];
      ASSERT_EQ(word, round);
      if (write) word = round + 1;
    }
    round += write;
  };
  auto count = [&](Counter c) { return pager_->stats().get(c); };
  walk(true);
  walk(true);
  uint64_t faults = count(Counter::kProtectionFaults), presumed = count(Counter::kPresumedDirty);
  walk(true);
  EXPECT_LT(count(Counter::kProtectionFaults) - faults, kPages / 2);
  EXPECT_GT(count(Counter::kPresumedDirty) - presumed, kPages / 3);
  uint64_t written = kPages * kPageSize;
  for (int i = 0; i < 200 && written >= kPages * kPageSize / 10; i++) {  // each fetch finds out for some of the pages
    uint64_t before = count(Counter::kBytesWritten);
    walk(false);
    written = count(Counter::kBytesWritten) - before;
  }
  EXPECT_LT(written, kPages * kPageSize / 10);
}

TEST_P(PagerTest, DiscardedMemoryReadsAsZero) {
  constexpr size_t kBytes = 24 * kMiB;
  std::byte* memory = pager_.allocate(kBytes);
  memset(memory, 0x5a, kBytes);
  pager_->addresses().discard(memory + kMiB, 20 * kMiB);
  for (size_t i = 0; i < kBytes; i += 512) {
    bool kept = i < kMiB || i >= 21 * kMiB;
    ASSERT_EQ(memory[i], kept ? std::byte{0x5a} : std::byte{0}) << i;
  }
  EXPECT_GT(pager_->stats().get(Counter::kBytesDiscarded), 0u);
}

TEST_P(PagerTest, FreedMemoryIsZeroWhenReused) {
  for (int round = 0; round < 5; round++) {
    std::byte* memory = pager_.allocate(20 * kMiB);
    for (size_t i = 0; i < 20 * kMiB; i += kPageSize) {
      ASSERT_EQ(memory[i], std::byte{0});
      memory[i] = std::byte{7};
    }
    pager_.free(memory, 20 * kMiB);
  }
  EXPECT_EQ(pager_->stats().populated_pages, 0u);
  EXPECT_EQ(pager_->stats().near_pages, 0u);
}

TEST_P(PagerTest, LazilyDecommittedPagesStayNearAndAreZero) {
  constexpr size_t kBytes = 2 * kMiB;
  std::byte* memory = pager_.allocate(kBytes);
  memset(memory, 7, kBytes);
  pager_->addresses().decommit_lazily(memory, kBytes);
  EXPECT_FALSE(pager_->addresses().is_committed(memory, kPageSize));
  EXPECT_GE(pager_->stats().near_pages, kBytes / kPageSize);
  ASSERT_TRUE(pager_->addresses().commit(memory, kBytes).ok());
  uint64_t faults = pager_->stats().get(Counter::kFaults);
  for (size_t i = 0; i < kBytes; i += 512) ASSERT_EQ(memory[i], std::byte{0}) << i;
  memset(memory, 8, kBytes);
  EXPECT_EQ(pager_->stats().get(Counter::kFaults), faults);
  for (size_t i = 0; i < kBytes; i += 512) ASSERT_EQ(memory[i], std::byte{8}) << i;
  pager_->check_valid();
}

TEST_P(PagerTest, LazilyDecommittedPagesAreEvictedFirstAndNotWritten) {
  constexpr size_t kBytes = 4 * kMiB, kOther = 32 * kMiB;
  std::byte* memory = pager_.allocate(kBytes);
  memset(memory, 7, kBytes);
  pager_->addresses().decommit_lazily(memory, kBytes);
  std::byte* other = pager_.allocate(kOther);
  memset(other, 9, kOther);
  EXPECT_LT(pager_->stats().get(Counter::kDirtyEvictions), kOther / kPageSize);
  for (size_t i = 0; i < kBytes; i += kPageSize)
    ASSERT_TRUE(pager_->table().word(reinterpret_cast<uint64_t>(memory + i)).is(PageState::kUnmapped)) << i;
  ASSERT_TRUE(pager_->addresses().commit(memory, kBytes).ok());
  for (size_t i = 0; i < kBytes; i += kPageSize) ASSERT_EQ(memory[i], std::byte{0}) << i;
  for (size_t i = 0; i < kOther; i += kPageSize) ASSERT_EQ(other[i], std::byte{9}) << i;
  pager_->check_valid();
}

// Far pages have no frame to keep; the server's copies are dropped.
TEST_P(PagerTest, LazilyDecommittedFarPagesAreDropped) {
  constexpr size_t kBytes = 32 * kMiB;
  std::byte* memory = pager_.allocate(kBytes);
  for (int round = 1; round <= 3; round++) {
    memset(memory, round, kBytes);
    pager_->addresses().decommit_lazily(memory, kBytes);
    ASSERT_TRUE(pager_->addresses().commit(memory, kBytes).ok());
    for (size_t i = 0; i < kBytes; i += kPageSize) ASSERT_EQ(memory[i], std::byte{0}) << i;
  }
  pager_.free(memory, kBytes);
  EXPECT_EQ(pager_->stats().populated_pages, 0u);
  EXPECT_EQ(pager_->stats().near_pages, 0u);
}

TEST_P(PagerTest, UnsealedMemoryHasItsContent) {
  constexpr size_t kBytes = 4 * kMiB;
  std::byte* memory = pager_.allocate(kBytes);
  for (size_t i = 0; i < kBytes; i += kPageSize) memory[i] = std::byte(i / kPageSize % 251);
  ASSERT_TRUE(pager_->addresses().protect(memory, kBytes, PROT_NONE).ok());
  pager_->check_valid();
  ASSERT_TRUE(pager_->addresses().protect(memory, kBytes, PROT_READ | PROT_WRITE).ok());
  for (size_t i = 0; i < kBytes; i += kPageSize) ASSERT_EQ(memory[i], std::byte(i / kPageSize % 251));
}

TEST_P(PagerTest, ALowerLimitIsReachedWhileRunning) {
  std::byte* memory = pager_.allocate(64 * kMiB);
  pager_->evictors().set_local({32 * kMiB, 0});
  memset(memory, 1, 64 * kMiB);
  pager_->evictors().set_local({10 * kMiB, 0});
  for (int i = 0; i < 2000 && pager_->stats().near_pages > 10 * kMiB / kPageSize; i++) usleep(5000);
  EXPECT_LE(pager_->stats().near_pages, 10 * kMiB / kPageSize);
  for (size_t i = 0; i < 64 * kMiB; i += kPageSize) ASSERT_EQ(memory[i], std::byte{1});
}

TEST_P(PagerTest, PinnedPagesAreNotEvicted) {
  constexpr size_t kBytes = 64 * kMiB;
  std::byte* memory = pager_.allocate(kBytes);
  memset(memory, 1, kBytes);
  ASSERT_EQ(pager_->paging().pin(memory + 100, 3 * kPageSize, true), 3 * kPageSize);
  memset(memory + kMiB, 2, kBytes - kMiB);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ASSERT_EQ(os::write(fds[1], memory + 100, 3 * kPageSize), static_cast<ssize_t>(3 * kPageSize));
  ASSERT_EQ(os::read(fds[0], memory + 100, 3 * kPageSize), static_cast<ssize_t>(3 * kPageSize));
  pager_->paging().unpin(memory + 100, 3 * kPageSize);
  close(fds[0]);
  close(fds[1]);
  pager_->check_valid();
}

TEST_P(PagerTest, PinStopsAtMemoryThatIsNotMapped) {
  std::byte* memory = pager_.allocate(2 * kPageSize);
  EXPECT_EQ(pager_->paging().pin(memory + 10, 5 * kPageSize, false), 2 * kPageSize - 10);
  pager_->paging().unpin(memory + 10, 2 * kPageSize - 10);
  EXPECT_EQ(pager_->paging().pin(memory + 2 * kPageSize, 1, false), 0u);
}

// Several threads write, read and discard in their own stripes of shared pages, and compare with a near copy.
TEST_P(PagerTest, ThreadsSeeTheirOwnWrites) {
  constexpr unsigned kThreads = 4;
  constexpr size_t kPages = 24 * kMiB / kPageSize;
  std::byte* memory = pager_.allocate(kPages * kPageSize);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<uint64_t> shadow(kPages, 0);
      for (int i = 0; i < 30000 && !wrong; i++) {
        size_t page = random() % kPages;
        auto* word = reinterpret_cast<volatile uint64_t*>(memory + page * kPageSize + t * 64);
        if (*word != shadow[page]) wrong++;
        if (random() % 2) *word = shadow[page] = random();
      }
      for (size_t page = 0; page < kPages; page++) {
        if (*reinterpret_cast<volatile uint64_t*>(memory + page * kPageSize + t * 64) != shadow[page]) wrong++;
      }
      pager_->paging().detach_thread();
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  pager_->check_valid();
  EXPECT_LE(pager_->stats().near_peak_pages, pager_->stats().limit_pages);
}

TEST_P(PagerTest, RegionsAreAddedAndRemovedAroundNearPages) {
  constexpr size_t kBytes = 8 * kMiB;
  std::byte* plain = pager_.allocate(kBytes);
  std::byte* regions[] = {pager_.allocate(kBytes), pager_.allocate(kBytes)};
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(pager_->addresses().add_region(regions[0], kBytes, PolicyKind::kLru).ok());
    ASSERT_TRUE(pager_->addresses().add_region(regions[1], kBytes, PolicyKind::kPriority).ok());
    EXPECT_EQ(pager_->addresses().add_region(regions[0], kBytes, PolicyKind::kFifo).code(), EINVAL);
    for (std::byte* memory : {plain, regions[0], regions[1]}) memset(memory, round + 1, kBytes);
    pager_->addresses().remove_region(regions[0]);
    for (std::byte* memory : {plain, regions[0], regions[1]}) {
      for (size_t i = 0; i < kBytes; i += kPageSize) ASSERT_EQ(memory[i], std::byte(round + 1));
    }
    pager_->addresses().remove_region(regions[1]);
  }
  pager_->check_valid();
}

INSTANTIATE_TEST_SUITE_P(Modes, PagerTest,
                         testing::Values(Case{Delivery::kSignal, true, PolicyKind::kFifo, 1},
                                         Case{Delivery::kSignal, false, PolicyKind::kTwoQueue, 2},
                                         Case{Delivery::kMessages, true, PolicyKind::kTwoQueue, 1},
                                         Case{Delivery::kMessages, false, PolicyKind::kFifo, 4},
                                         Case{Delivery::kSignal, true, PolicyKind::kLru, 2},
                                         Case{Delivery::kSignal, false, PolicyKind::kPriority, 1},
                                         Case{Delivery::kSignal, false, PolicyKind::kTwoQueue, 1, WriteBack::kLine},
                                         Case{Delivery::kMessages, true, PolicyKind::kLru, 2, WriteBack::kLine}));

// ---- Lines ----

TEST(LinesTest, ChangesAreFoundInEveryByte) {
  alignas(64) std::byte now[kPageSize], before[kPageSize];
  for (size_t i = 0; i < kPageSize; i++) now[i] = before[i] = static_cast<std::byte>(i * 7);
  for (auto* compare : {changed_lines, changed_lines_portable}) {
    EXPECT_EQ(compare(now, before, before), 0u);
    for (size_t at = 0; at < kPageSize; at++) {
      now[at] ^= std::byte{1};
      ASSERT_EQ(compare(now, before, before), uint64_t{1} << at / 64) << at;
      now[at] ^= std::byte{1};
    }
    now[0] ^= std::byte{8}, now[64] ^= std::byte{8}, now[4095] ^= std::byte{8};
    EXPECT_EQ(compare(now, before, before), uint64_t{3} | uint64_t{1} << 63);
    now[0] ^= std::byte{8}, now[64] ^= std::byte{8}, now[4095] ^= std::byte{8};
  }
}

TEST(LinesTest, RunsCoverExactlyTheSetBits) {
  for (uint64_t lines :
       {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x8000000000000001}, uint64_t{0xf0ff00000000ff0e}}) {
    uint64_t covered = 0;
    unsigned runs = 0;
    for_each_run(lines, [&](unsigned first, unsigned count) {
      ASSERT_GT(count, 0u);
      runs++;
      for (unsigned i = first; i < first + count; i++) {
        ASSERT_EQ(covered >> i & 1, 0u);
        covered |= uint64_t{1} << i;
      }
      ASSERT_TRUE(first + count == 64 || (lines >> (first + count) & 1) == 0);  // as long as it can be
    });
    EXPECT_EQ(covered, lines);
    EXPECT_EQ(runs, runs_in(lines));
  }
}

TEST(LinesTest, OnlyChangedLinesAreWrittenBack) {
  constexpr size_t kPages = 8192;
  uint64_t written[2], pages[2];
  for (bool line : {false, true}) {
    Options o = small_options();
    o.writeback = line ? WriteBack::kLine : WriteBack::kPage;
    PagerFixture pager(o, new LocalStore(kSpace, kSpace, false), Delivery::kSignal);
    auto* memory = reinterpret_cast<volatile uint64_t*>(pager.allocate(kPages * kPageSize));
    for (size_t i = 0; i < kPages * 512; i++) memory[i] = i;
    Stats before = pager->stats();
    for (size_t i = 0; i < kPages; i++) memory[i * 37 % kPages * 512 + i % 512] = ~i;
    for (size_t i = 0; i < kPages; i++) ASSERT_EQ(memory[i * 37 % kPages * 512 + i % 512], ~i);
    Stats after = pager->stats();
    written[line] = after.get(Counter::kBytesWritten) - before.get(Counter::kBytesWritten);
    pages[line] = after.get(Counter::kDirtyEvictions) - before.get(Counter::kDirtyEvictions);
    EXPECT_EQ(after.get(Counter::kLinePages) > kPages / 2, line);
    for (size_t i = 0; i < kPages; i++) memory[i * 37 % kPages * 512 + i % 512] = i * 37 % kPages * 512 + i % 512;
    for (size_t i = 0; i < kPages * 512; i++) ASSERT_EQ(memory[i], i);
  }
  EXPECT_GT(pages[true], kPages / 2);
  EXPECT_LT(written[true], written[false] / 4);  // pages that were never stored are written whole
}

TEST(FramesTest, ALowerLimitIsReachedGradually) {
  Frames frames;
  frames.set_limit(1000);
  ASSERT_TRUE(frames.try_take(900));
  frames.set_limit(300);
  EXPECT_EQ(frames.target(), 300u);
  EXPECT_FALSE(frames.try_take(1));
  EXPECT_TRUE(frames.low());  // the evictors work
  for (int batches = 0; frames.limit() > 300; batches++) {
    ASSERT_LT(batches, 20);
    frames.give(100);
    EXPECT_TRUE(frames.try_take(40));  // half of the released frames can be taken
    EXPECT_LE(frames.used(), frames.limit());
  }
  EXPECT_GE(frames.used(), 150u);  // no more were released than necessary
  frames.set_limit(2000);
  EXPECT_EQ(frames.limit(), 2000u);
}

TEST(PagerLimits, AShareGrowsWithTheHeap) {
  Options o = small_options();
  o.local = {0, 0.25};
  PagerFixture pager(o, new LocalStore(kSpace, kSpace, true), Delivery::kSignal);
  std::byte* memory = pager.allocate(256 * kMiB);
  memset(memory, 1, 256 * kMiB);
  EXPECT_NEAR(static_cast<double>(pager->stats().limit_pages), 64.0 * kMiB / kPageSize, 64);
  EXPECT_LE(pager->stats().near_peak_pages, pager->stats().limit_pages);
}

TEST(PagerLimits, AShareOfAllEvictsNothing) {
  Options o = small_options();
  o.local = {0, 1.0};
  PagerFixture pager(o, new LocalStore(kSpace, kSpace, true), Delivery::kSignal);
  std::byte* memory = pager.allocate(128 * kMiB);
  for (int i = 0; i < 3; i++) memset(memory, i, 128 * kMiB);
  EXPECT_EQ(pager->stats().get(Counter::kEvictions), 0u);
}

TEST(PagerLimits, AFullServerIsAnError) {
  PagerFixture pager(small_options(), new LocalStore(kSpace, 128 * kMiB, true), Delivery::kSignal);
  std::byte* memory = pager->addresses().reserve(256 * kMiB, kPageSize);
  EXPECT_EQ(pager->addresses().commit(memory, 256 * kMiB).code(), ENOMEM);
  EXPECT_TRUE(pager->addresses().commit(memory, 128 * kMiB).ok());
  memset(memory, 1, 128 * kMiB);
  pager->addresses().decommit(memory, 128 * kMiB);
  pager->addresses().release(memory, 256 * kMiB);
}

TEST(Prefetcher, FollowsStreamsAndIgnoresNoise) {
  Prefetcher p;
  EXPECT_EQ(p.on_fault(100).count, 0u);
  EXPECT_EQ(p.on_fault(101).count, 0u);
  Window w = p.on_fault(102);
  EXPECT_EQ(w.stride, 1);
  EXPECT_EQ(w.count, Prefetcher::kFirstWindow);
  p.record_window(w.count, w.count);
  EXPECT_EQ(p.on_fault(5000).count, 0u);  // noise between
  w = p.on_fault(107);
  EXPECT_EQ(w.count, 2 * Prefetcher::kFirstWindow);
  EXPECT_EQ(p.used_window(), Prefetcher::kFirstWindow);
}

TEST(Prefetcher, SkipsPagesThatAreNear) {
  Prefetcher p;
  for (PageIndex i : {10u, 11u}) p.on_fault(i);
  Window w = p.on_fault(12);
  p.record_window(w.count, 1);               // all but one were near; so is the marker, page 17
  EXPECT_GT(p.on_fault(19).count, w.count);  // so the stream continues at 19
}

TEST(Prefetcher, FollowsBackwardsAndStrided) {
  Prefetcher p;
  for (PageIndex i : {1000u, 997u}) EXPECT_EQ(p.on_fault(i).count, 0u);
  Window w = p.on_fault(994);
  EXPECT_EQ(w.stride, -3);
  EXPECT_GT(w.count, 0u);
}

TEST(Prefetcher, IgnoresRandomFaults) {
  Prefetcher p;
  std::mt19937 random(3);
  unsigned fetched = 0;
  for (int i = 0; i < 10000; i++) {
    Window w = p.on_fault(random() % 10000000);
    fetched += w.count;
    if (w.count) p.record_window(w.count, w.count);
  }
  EXPECT_LT(fetched, 20u);
}

TEST(SpaceAllocator, AllocatesFreesAndJoins) {
  SpaceAllocator a(kPageSize, 100 * kPageSize);
  uint64_t x = a.take(10 * kPageSize, kPageSize), y = a.take(10 * kPageSize, 16 * kPageSize);
  EXPECT_EQ(x, kPageSize);
  EXPECT_EQ(y, 16 * kPageSize);
  EXPECT_TRUE(a.take_exactly(50 * kPageSize, 60 * kPageSize));
  EXPECT_FALSE(a.take_exactly(55 * kPageSize, 56 * kPageSize));
  EXPECT_EQ(a.used_end(100 * kPageSize), 60 * kPageSize);
  a.give(x, x + 10 * kPageSize);
  a.give(y, y + 10 * kPageSize);
  a.give(50 * kPageSize, 60 * kPageSize);
  EXPECT_TRUE(a.is_valid());
  EXPECT_EQ(a.take(99 * kPageSize, kPageSize), kPageSize);
  EXPECT_EQ(a.take(kPageSize, kPageSize), 0u);
}

}  // namespace
}  // namespace farside::pager
