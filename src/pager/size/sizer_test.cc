// Programs that are only modelled run under the rules of automatic sizes: pages leave in the order in which they came,
// each access of a far page costs time. No clock runs.
#include "pager/size/sizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace farside::pager {
namespace {

constexpr uint64_t kUseNs = 1000;      // a page's use, near
constexpr uint64_t kFaultNs = 10'000;  // more if it is far
constexpr uint64_t kStepNs = 2'000'000;
constexpr uint64_t kLeast = 1000;

class Program {
 public:
  explicit Program(uint64_t pages, double slowdown = 0.1) : evicted_at_(pages), sizer_(slowdown) {
    for (uint64_t page = 0; page < pages; page++) near_.push_back(page);
  }

  // Uses pages of [first, first + count) at random for a while. Returns the loss.
  double use(uint64_t first, uint64_t count, uint64_t ns) {
    uint64_t useful = 0, lost = 0;
    while (useful < ns) {
      SizeSample sample;
      while (sample.run_ns < kStepNs) {
        uint64_t cost = use(first + random_() % count);
        sample.run_ns += kUseNs + cost;
        sample.lost_ns += cost;
      }
      useful += sample.run_ns - sample.lost_ns;
      lost += sample.lost_ns;
      step(sample);
    }
    return static_cast<double>(lost) / static_cast<double>(useful);
  }

  void idle(unsigned seconds) {
    for (unsigned i = 0; i < 500 * seconds; i++) step({});
  }

  uint64_t near() const { return near_.size(); }

 private:
  uint64_t use(uint64_t page) {
    if (evicted_at_[page] == 0) return 0;
    ages_.put(evicted_ - evicted_at_[page]);
    evicted_at_[page] = 0;
    near_.push_back(page);
    evict();
    return kFaultNs;
  }

  void evict() {
    for (; near_.size() > limit(); near_.pop_front()) evicted_at_[near_.front()] = ++evicted_;
  }

  void step(SizeSample sample) {
    sample.elapsed_ns = kStepNs;
    sample.evicted = evicted_ - evicted_before_;
    sample.near = near();
    sample.far = evicted_at_.size() - near();
    sample.free = limit() - near();
    evicted_before_ = evicted_;
    bool ended = sizer_.add(sample);
    far_ = ended ? sizer_.next(sample, ages_, far_, kLeast) : sizer_.idle(sample, far_, kLeast);
    if (ended) ages_.clear();
    evict();
  }

  uint64_t limit() const { return std::max(evicted_at_.size() - std::min<uint64_t>(far_, evicted_at_.size()), kLeast); }

  std::vector<uint64_t> evicted_at_;  // by page; 0: near
  std::deque<uint64_t> near_;
  uint64_t evicted_ = 0, evicted_before_ = 0, far_ = 0;
  Histogram ages_;  // of the window
  std::minstd_rand random_;
  Sizer sizer_;
};

constexpr uint64_t kSecond = 1'000'000'000;

TEST(SizerTest, WhatIsNotUsedLeavesAndTheLossStaysBelowTheTarget) {
  Program program(100'000);
  double all = program.use(0, 20'000, 20 * kSecond);
  EXPECT_LT(all, 0.1);
  EXPECT_LT(program.near(), 26'000u);
  EXPECT_GT(program.near(), 15'000u);
  EXPECT_LT(program.use(0, 20'000, 5 * kSecond), 0.1);
}

TEST(SizerTest, AProgramThatUsesEverythingKeepsNearlyEverything) {
  Program program(50'000);
  EXPECT_LT(program.use(0, 50'000, 20 * kSecond), 0.1);
  EXPECT_GT(program.near(), 45'000u);
}

TEST(SizerTest, AHigherTargetSavesMore) {
  Program careful(50'000, 0.05), bold(50'000, 2);
  EXPECT_LT(careful.use(0, 50'000, 10 * kSecond), 0.05);
  EXPECT_LT(bold.use(0, 50'000, 10 * kSecond), 2);
  EXPECT_LT(bold.near(), careful.near());
}

// After a shift of what is used, near memory grows at once: in the time that the pages take to come.
TEST(SizerTest, GrowthJumps) {
  Program program(100'000);
  program.use(0, 10'000, 20 * kSecond);
  ASSERT_LT(program.near(), 15'000u);
  program.use(50'000, 40'000, kSecond / 2);
  EXPECT_GT(program.near(), 35'000u);
  EXPECT_LT(program.use(50'000, 40'000, kSecond), 0.1);
}

// A set that is used in turn with others costs more than one step can say: steps down become rare.
TEST(SizerTest, StepsDownThatWentTooFarBecomeRare) {
  Program program(60'000);
  double loss = 0;
  for (unsigned phase = 0; phase < 60; phase++) loss += program.use(phase % 3 * 20'000, 20'000, kSecond / 2) / 60;
  EXPECT_LT(loss, 0.13);
}

TEST(SizerTest, AnIdleProgramGivesMemoryBackSlowly) {
  Program program(64'000);
  program.idle(1);
  program.idle(10);
  EXPECT_LT(program.near(), 58'000u);
  EXPECT_GT(program.near(), 50'000u);
  program.idle(1000);
  EXPECT_EQ(program.near(), kLeast);
}

}  // namespace
}  // namespace farside::pager
