// Reads files that are written as the pager writes them, from programs that are modelled.
#include "tools/plan/samples.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "launch/embedded_server.h"

namespace farside::plan {
namespace {

constexpr double kTicksPerUs = 2000;
constexpr unsigned kPerRound = 40'000, kRounds = 48;  // accesses between two rounds

// A program whose pages are all in the sample unless `threshold` says otherwise. Every access takes 1 us, and 5 more
// where the page is far.
class ModelledRun {
 public:
  ModelledRun(uint32_t pages, uint32_t threshold = kSampleAll) : far_(pages), touched_(pages), threshold_(threshold) {}

  void access(uint32_t page) {
    us_++;
    make_far();
    if (!is_sampled(page, threshold_)) return;
    if (!touched_[page]) add(SampleKind::kTouched, page);
    else if (far_[page]) add(SampleKind::kFetched, page), us_ += kFaultUs, lost_us_ += kFaultUs;
    touched_[page] = true;
    far_[page] = false;
  }

  void begin_round() {
    add(SampleKind::kThreshold, threshold_);
    add(SampleKind::kLostUs, static_cast<uint32_t>(lost_us_));
    // What it ran for is computed from two clocks, so it may fall a little.
    add(SampleKind::kRanUs, static_cast<uint32_t>(us_) - (slice_ % 2 == 0 ? 0 : kPerRound + 1000));
    add(SampleKind::kPopulated, static_cast<uint32_t>(far_.size()));
    add(SampleKind::kRound, slice_);
    next_ = 0;
  }

  Samples samples() const {
    auto directory = PrivateDirectory::create();
    std::string path = (*directory)->file("sample");
    SampleHeader header{};
    header.magic = SampleHeader::kMagic;
    header.ticks_per_us = kTicksPerUs;
    header.events.store(events_.size() / sizeof(SampleEvent));
    std::string begin(kSampleEventsAt, 0);
    memcpy(begin.data(), &header, sizeof header);
    std::ofstream(path, std::ios::binary) << begin << events_;
    Result<Samples> samples = read_samples(path);
    EXPECT_TRUE(samples.ok()) << samples.status().text();
    return *samples;
  }

 private:
  static constexpr double kFaultUs = 5;

  // The pages of the next cluster, until the round has reached all of the slice.
  void make_far() {
    for (bool made = false; !made && next_ < far_.size(); next_ += kSampleCluster) {
      if (!is_sampled(next_, threshold_) || sample_slice(next_) != slice_) continue;
      for (uint32_t page = next_; page < next_ + kSampleCluster && page < far_.size(); page++) {
        if (!touched_[page]) continue;
        add(far_[page] ? SampleKind::kFarStill : SampleKind::kFarClean, page);
        far_[page] = made = true;
      }
    }
    if (next_ < far_.size() || next_ == kSampleAll) return;
    slice_ = (slice_ + 1) % kSampleSlices;
    next_ = kSampleAll;
  }

  void add(SampleKind kind, uint32_t value) {
    struct {
      uint64_t ticks;
      uint32_t value;
      SampleKind kind;
    } event = {static_cast<uint64_t>(us_ * kTicksPerUs), value, kind};
    events_.append(reinterpret_cast<const char*>(&event), sizeof event);
  }

  std::vector<bool> far_, touched_;
  uint32_t slice_ = 0, next_ = kSampleAll;  // of the round; the page that it has reached
  uint32_t threshold_;
  double us_ = 0, lost_us_ = 0;
  std::string events_;
};

// A program that touches `pages` and then uses some of them at random.
Samples used_at_random(uint32_t pages, uint32_t used, unsigned seed, uint32_t threshold = kSampleAll) {
  ModelledRun run(pages, threshold);
  std::mt19937 random(seed);
  for (uint32_t page = 0; page < pages; page++) run.access(page);
  for (unsigned round = 0; round < kRounds; round++) {
    run.begin_round();
    for (unsigned i = 0; i < kPerRound; i++) run.access(random() % used);
  }
  return run.samples();
}

double fetches_at(const Samples& samples, double pages) { return fetches_with(samples, {pages})[0].all.value; }

TEST(SamplesTest, RandomAccessesMissInProportionToWhatIsNotNear) {
  constexpr uint32_t kPages = 8192;
  Samples samples = used_at_random(kPages, kPages, 1);
  for (double part : {0.25, 0.5, 0.75}) {
    double expected = (1 - part) * kRounds * kPerRound;
    EXPECT_NEAR(fetches_at(samples, part * kPages), expected, 0.1 * expected) << part;
  }
  EXPECT_LT(fetches_at(samples, 1.2 * kPages), 0.01 * kRounds * kPerRound);
  EXPECT_NEAR(samples.processors, 1, 0.1);
}

TEST(SamplesTest, ASmallerSampleSaysTheSameWithinItsError) {
  constexpr uint32_t kPages = 32768;
  Samples samples = used_at_random(kPages, kPages, 2, kSampleAll / 8);
  EXPECT_NEAR(samples.rate(), 0.125, 0.001);
  Fetches fetches = fetches_with(samples, {kPages / 2.0})[0];
  double expected = 0.5 * kRounds * kPerRound;
  EXPECT_NEAR(fetches.all.value, expected, 0.1 * expected);
  EXPECT_GT(fetches.all.error, 0);
  EXPECT_LT(fetches.all.error, 0.2 * expected);
}

// The two queues keep the part of a loop that fits; an LRU queue would keep nothing of it.
TEST(SamplesTest, OfALoopThePartThatDoesNotFitMisses) {
  constexpr uint32_t kPages = 10'000;
  ModelledRun run(kPages);
  uint32_t at = 0;
  for (; at < kPages; at++) run.access(at);
  for (unsigned round = 0; round < kRounds; round++) {
    run.begin_round();
    for (unsigned i = 0; i < kPerRound; i++) run.access(at++ % kPages);
  }
  std::vector<Fetches> fetches = fetches_with(run.samples(), {100, 2500, 5000, 7500, 9500, 10'000, 13'000});
  EXPECT_NEAR(fetches[2].all.value, 0.5 * kRounds * kPerRound, 0.15 * kRounds * kPerRound);
  EXPECT_NEAR(fetches[4].all.value, 0.05 * kRounds * kPerRound, 0.025 * kRounds * kPerRound);
  EXPECT_NEAR(fetches[5].all.value, 0, 0.01 * kRounds * kPerRound);
  EXPECT_GT(fetches[2].in_streams, 0.9 * fetches[2].all.value);
}

// Pages that return long after the loop do not hide that most of the loop returns at once.
TEST(SamplesTest, TheEndOfALoopIsSeenBesidePagesThatReturnRarely) {
  constexpr uint32_t kLoop = 10'000, kRare = 800;
  ModelledRun run(kLoop + kRare);
  for (uint32_t page = 0; page < kLoop + kRare; page++) run.access(page);
  uint32_t at = 0, rare = 0;
  for (unsigned round = 0; round < kRounds; round++) {
    run.begin_round();
    for (unsigned i = 0; i < kPerRound; i++) run.access(i % 1000 == 0 ? kLoop + rare++ % kRare : at++ % kLoop);
  }
  std::vector<Fetches> fetches = fetches_with(run.samples(), {2500, 5000, 7500, 9500, 10'000, 10'800});
  EXPECT_GT(fetches[3].all.value, 0.03 * kRounds * kPerRound);
  EXPECT_LT(fetches[3].all.value, 0.12 * kRounds * kPerRound);
  EXPECT_LT(fetches[5].all.value, 0.01 * kRounds * kPerRound);
}

// A hot set beside pages that are never used again: only what is smaller than the hot set misses.
TEST(SamplesTest, ColdPagesNeedNoNearMemory) {
  constexpr uint32_t kPages = 8192, kHot = 1024;
  Samples samples = used_at_random(kPages, kHot, 3);
  EXPECT_LT(fetches_at(samples, 1.3 * kHot), 0.002 * kRounds * kPerRound);
  EXPECT_GT(fetches_at(samples, 0.5 * kHot), 0.4 * kRounds * kPerRound);
}

// Half of the pages is used at random; at last all of them, once and fast.
TEST(SamplesTest, MoreNearMemoryFetchesNoMore) {
  constexpr uint32_t kPages = 8192;
  ModelledRun run(kPages);
  std::mt19937 random(4);
  for (uint32_t page = 0; page < kPages; page++) run.access(page);
  for (unsigned round = 0; round < kRounds; round++) {
    run.begin_round();
    for (unsigned i = 0; i < kPerRound; i++) run.access(random() % (kPages / 2));
  }
  for (uint32_t page = 0; page < kPages; page++) run.access(page);
  std::vector<Fetches> fetches = fetches_with(run.samples(), {1024, 2048, 4096, 5120, 6144, 7168});
  for (size_t i = 1; i < fetches.size(); i++) EXPECT_LE(fetches[i].all.value, fetches[i - 1].all.value) << i;
  EXPECT_GT(fetches[0].all.value, 10 * fetches[3].all.value);
}

TEST(SamplesTest, WhatIsNoFileOfSamplesIsAnError) {
  auto directory = PrivateDirectory::create();
  std::string path = (*directory)->file("other");
  std::ofstream(path) << std::string(2 * kSampleEventsAt, 'x');
  EXPECT_EQ(read_samples(path).status().code(), EINVAL);
  std::ofstream(path) << "short";
  EXPECT_EQ(read_samples(path).status().code(), EINVAL);
}

}  // namespace
}  // namespace farside::plan
