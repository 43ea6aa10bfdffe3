// Samples of a heap whose content is compared with a shadow copy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "pager/test_support.h"

namespace farside::pager {
namespace {

constexpr uint64_t kSpace = 1 * kGiB;
constexpr size_t kPages = 8192, kUsed = kPages / 2;  // used again

struct Event {
  uint64_t ticks;
  uint32_t value;
  SampleKind kind;
};

class SamplerTest : public testing::TestWithParam<bool> {
 protected:
  SamplerTest() : pager_(options(), new LocalStore(kSpace, kSpace, GetParam()), Delivery::kSignal) {
    std::filesystem::create_directory(folder_);
  }
  ~SamplerTest() override { std::filesystem::remove_all(folder_); }

  static Options options() {
    Options o;
    o.local = {0, 1};
    o.space = kSpace;
    o.huge = HugePages::kAlways;
    return o;
  }

  std::vector<Event> events() const {
    std::filesystem::path file = *begin(std::filesystem::directory_iterator(folder_));
    std::ifstream stream(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    const auto* header = reinterpret_cast<const SampleHeader*>(bytes.data());
    EXPECT_EQ(header->magic, SampleHeader::kMagic);
    EXPECT_EQ(header->pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(header->is_full, 0u);
    std::vector<Event> events(header->events.load());
    memcpy(events.data(), bytes.data() + kSampleEventsAt, events.size() * sizeof(Event));
    return events;
  }

  std::filesystem::path folder_ = testing::TempDir() + "sampler." + std::to_string(getpid());
  PagerFixture pager_;
};

TEST_P(SamplerTest, UsesOfPagesAreSeenAndNothingIsLost) {
  auto* memory = reinterpret_cast<volatile uint64_t*>(pager_.allocate(kPages * kPageSize));
  constexpr size_t kWordsOfPage = kPageSize / sizeof(uint64_t);
  std::vector<uint64_t> shadow(kPages);
  for (size_t page = 0; page < kPages; page++) memory[page * kWordsOfPage] = shadow[page] = page + 1;
  ASSERT_TRUE(pager_->sample((folder_ / "sample").c_str()).ok());
  std::mt19937 random(1);
  for (uint64_t end = now_ns() + 1'500'000'000; now_ns() < end;) {
    size_t page = random() % kUsed;
    ASSERT_EQ(memory[page * kWordsOfPage], shadow[page]) << page;
    if (random() % 2 == 0) memory[page * kWordsOfPage] = shadow[page] = random();
  }
  for (size_t page = 0; page < kPages; page++) ASSERT_EQ(memory[page * kWordsOfPage], shadow[page]) << page;

  PageIndex first = pager_->table().index_of(reinterpret_cast<uint64_t>(memory));
  std::array<uint64_t, static_cast<size_t>(SampleKind::kRound) + 1> count{};
  std::vector<bool> far(kPages);
  uint64_t of_used = 0, of_others = 0;
  for (const Event& event : events()) {
    ASSERT_LE(event.kind, SampleKind::kRound);
    count[static_cast<size_t>(event.kind)]++;
    if (event.kind >= SampleKind::kThreshold || event.value - first >= kPages) continue;
    size_t page = event.value - first;
    bool made_far = event.kind == SampleKind::kFarClean || event.kind == SampleKind::kFarDirty;
    // Each use of a page is that of a far one, and each page that is made far was near.
    if (made_far || event.kind == SampleKind::kFetched) {
      ASSERT_NE(far[page], made_far) << page;
      far[page] = made_far;
    }
    if (made_far) (page < kUsed ? of_used : of_others)++;
  }
  auto of = [&](SampleKind kind) { return count[static_cast<size_t>(kind)]; };
  EXPECT_GT(of(SampleKind::kRound), kSampleSlices / 2);
  EXPECT_EQ(of(SampleKind::kNone), 0u);
  EXPECT_GT(of(SampleKind::kFetched), kUsed / 4);
  EXPECT_GT(of(SampleKind::kFarDirty), 0u);
  EXPECT_GT(of_used, kUsed / 4);
  EXPECT_LE(of_others, kPages - kUsed);  // once each: they are not used before the end
}

// Huge frames among them: their pages are sampled one by one.
TEST_P(SamplerTest, SamplesBeginAndEndWhileThreadsUseTheirPages) {
  auto* memory = reinterpret_cast<std::atomic<uint64_t>*>(pager_.allocate(kPages * kPageSize));
  constexpr size_t kWordsOfPage = kPageSize / sizeof(uint64_t);
  for (size_t page = 0; page < kPages; page++) memory[page * kWordsOfPage] = page;
  std::atomic<bool> ended = false;
  std::vector<std::thread> threads;
  for (size_t first : {0, 1}) {
    threads.emplace_back([&, first] {
      for (uint64_t pass = 1; !ended; pass++) {
        for (size_t page = first; page < kPages; page += 2)
          ASSERT_EQ(memory[page * kWordsOfPage]++ % kPages, (page + pass - 1) % kPages);
      }
      pager_->paging().detach_thread();
    });
  }
  for (unsigned i = 0; i < 20; i++) {
    pager_->evictors().pause();
    ASSERT_TRUE(pager_->sample("").ok());
    pager_->evictors().resume();
    usleep(20'000);
    pager_->evictors().pause();
    EXPECT_TRUE(pager_->is_sampling());
    pager_->stop_sampling();
    EXPECT_FALSE(pager_->is_sampling());
    pager_->evictors().resume();
  }
  ended = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(pager_->stats().get(Counter::kMajorFaults), 0u);
  EXPECT_GT(pager_->stats().get(Counter::kHugeBroken), 0u);
  pager_->check_valid();
}

INSTANTIATE_TEST_SUITE_P(Stores, SamplerTest, testing::Bool());

}  // namespace
}  // namespace farside::pager
