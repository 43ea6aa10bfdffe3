// Recognizes huge pages that a program uses densely, but in no order that streams.h could see: a block of a matrix, a
// partition of a sort or of a join. As with the paths of far objects (Atlas 3.3), what was used densely comes back
// whole.
//
// A huge page is dense if most of its pages came one by one, for the program, while less than half of near memory was
// replaced. Random use of memory that is larger than near memory never is. When a dense huge page has left, the first
// fault brings all of it.
//
// A huge page that came whole does not show which of its pages are used. Therefore one in kTrialEvery comes by pages
// again, as a trial. Trials that fail lower the confidence, and below a minimum of it no huge page comes whole. So a
// program whose use becomes sparse fetches about as much as near memory holds for nothing, and then no more.
//
// Thread-safe and async-signal-safe. All state is advice: updates may be lost.
#pragma once
#include <algorithm>
#include <atomic>

#include "pager/huge/huge_table.h"
#include "pager/pages/frames.h"

namespace farside::pager {

class HugeDensity {
 public:
  static constexpr unsigned kDensePages = kHugePages * 3 / 4;

  HugeDensity(HugeTable& table, const Frames& frames) : table_(table), frames_(frames) {}

  // A fault has fetched so many pages of the huge page.
  void record_fetch(HugeIndex huge, unsigned pages) {
    Use use = Use::of(table_.use(huge));
    if (frames_.age_of(use.since) > window()) use = {0, frames_.epoch()};
    use.pages = static_cast<uint16_t>(use.pages + pages);
    bool dense = use.pages >= kDensePages;
    if (dense) use = {0, frames_.epoch()};
    table_.set_use(huge, use.bits());
    if (!dense) return;
    table_.set(huge, HugeTable::kDense);
    confidence_.store(std::min(confidence() + 1, kMaxConfidence), std::memory_order_relaxed);
    HugeIndex trial = huge;
    trial_.compare_exchange_strong(trial, kNone, std::memory_order_relaxed);
  }

  // A fault on a far page: whether all of the huge page should be fetched.
  bool expects_use(HugeIndex huge) {
    if (!table_.has(huge, HugeTable::kDense)) return false;
    end_late_trial();
    if (confidence() < kMinConfidence) return false;
    bool is_trial = whole_.fetch_add(1, std::memory_order_relaxed) % kTrialEvery == 0 && begin_trial(huge);
    return !is_trial;
  }

 private:
  static constexpr unsigned kTrialEvery = 16;  // huge pages
  static constexpr int kMinConfidence = 2, kMaxConfidence = 8, kFailureCosts = 4;
  static constexpr HugeIndex kNone = ~HugeIndex{0};

  // How many pages of a huge page came, and since which epoch of evictions they are counted.
  struct Use {
    uint16_t pages, since;
    static Use of(uint32_t bits) { return {static_cast<uint16_t>(bits), static_cast<uint16_t>(bits >> 16)}; }
    uint32_t bits() const { return pages | uint32_t{since} << 16; }
  };

  uint64_t window() const { return frames_.limit() / 2; }
  int confidence() const { return confidence_.load(std::memory_order_relaxed); }

  bool begin_trial(HugeIndex huge) {
    HugeIndex none = kNone;
    if (!trial_.compare_exchange_strong(none, huge, std::memory_order_relaxed)) return false;
    trial_since_.store(frames_.evicted(), std::memory_order_relaxed);
    table_.clear(huge, HugeTable::kDense);
    table_.set_use(huge, Use{0, frames_.epoch()}.bits());
    return true;
  }

  void end_late_trial() {
    HugeIndex trial = trial_.load(std::memory_order_relaxed);
    if (trial == kNone || frames_.evicted() - trial_since_.load(std::memory_order_relaxed) <= window()) return;
    if (!trial_.compare_exchange_strong(trial, kNone, std::memory_order_relaxed)) return;
    confidence_.store(std::max(confidence() - kFailureCosts, 0), std::memory_order_relaxed);
  }

  HugeTable& table_;
  const Frames& frames_;
  std::atomic<int> confidence_{0};
  std::atomic<unsigned> whole_{0};        // huge pages that were expected to be used
  std::atomic<HugeIndex> trial_{kNone};   // the one that comes by pages to see whether it is
  std::atomic<uint64_t> trial_since_{0};  // in evicted pages
};

}  // namespace farside::pager
