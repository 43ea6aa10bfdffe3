// Recognizes huge pages that a program uses densely, but in no order that streams.h could see: a block of a matrix, a
// partition of a sort or of a join. As with the paths of far objects (Atlas 3.3), what was used densely comes back
// whole.
//
// A stay of a huge page by pages lasts while half of near memory is replaced. It is dense if at least half of the huge
// page was far at its begin, and most of that came, each page counted once. Random use of memory that is larger than
// near memory never is dense, and neither are pages that return again and again.
//
// A huge page that came whole does not show which of its pages are used, so each earns its whole stays: after two dense
// stays in a row it comes whole once, then by pages again, as a trial. A dense trial doubles the whole stays until the
// next one, up to kMaxStays; one that is not dense ends them. So where only the use of some huge pages becomes sparse,
// each is fetched for nothing as often as it was used densely before at most. Where that of all does, trials that fail
// lower the confidence, below whose minimum no huge page comes whole.
//
// Thread-safe and async-signal-safe. All state is advice: updates may be lost.
#pragma once
#include <algorithm>
#include <atomic>
#include <span>

#include "pager/huge/huge_table.h"
#include "pager/pages/frames.h"

namespace farside::pager {

class HugeDensity {
 public:
  static constexpr unsigned kMinFar = kHugePages / 2;  // as HugePath::comes_whole() demands
  static constexpr unsigned kMaxStays = 8;

  HugeDensity(HugeTable& table, const Frames& frames) : table_(table), frames_(frames) {}

  // A fault has fetched these pages; those of the huge page count. count_far(): how many pages of the huge page were
  // far before; called if a stay begins.
  template <typename CountFar>
  void record_fetch(HugeIndex huge, std::span<const PageIndex> pages, CountFar count_far) {
    Use use = Use::of(table_.use(huge));
    if (frames_.age_of(use.since) > window() || !use.has_begun) begin_stay(huge, use, count_far());
    if (use.far < kMinFar) return table_.set_use(huge, use.bits());
    unsigned came = table_.add_fetched(huge, pages);
    if (came >= use.far - use.far / 4) end_dense_stay(huge, use);
    table_.set_use(huge, use.bits());
  }

  // A fault on a far page: whether all of the huge page should be fetched.
  bool expects_use(HugeIndex huge) {
    if (!table_.has(huge, HugeTable::kDense)) return false;
    end_late_trial();
    if (confidence() < kMinConfidence) return false;
    Use use = Use::of(table_.use(huge));
    if (use.whole > 0) return true;
    begin_trial(huge, use);
    return false;
  }
  // It has been fetched whole.
  void record_whole(HugeIndex huge) {
    Use use = Use::of(table_.use(huge));
    if (use.whole > 0) use.whole--;
    use.has_begun = false;
    table_.set_use(huge, use.bits());
  }

 private:
  static constexpr unsigned kMaxDense = 5;  // stays in a row that are counted: the last four earn 1, 2, 4, 8 whole ones
  static constexpr int kMinConfidence = 2, kMaxConfidence = 8, kFailureCosts = 4;
  static constexpr HugeIndex kNone = ~HugeIndex{0};

  //   31        16 15   14 13   11 10     7 6       0
  //  +------------+-------+-------+--------+---------+
  //  | since      | begun | dense | whole  | far / 4 |
  //  +------------+-------+-------+--------+---------+
  // since: the epoch in which the stay began. begun: whether one has. dense: stays in a row. whole: stays that are left
  // until a trial. far: pages that were far when the stay began; 0: they have come, or do not matter.
  struct Use {
    unsigned far, whole, dense;
    bool has_begun;
    uint16_t since;
    static Use of(uint32_t bits) {
      return {(bits & 0x7f) * 4, bits >> 7 & 0xf, bits >> 11 & 7, (bits >> 14 & 1) != 0,
              static_cast<uint16_t>(bits >> 16)};
    }
    uint32_t bits() const {
      return far / 4 | whole << 7 | dense << 11 | uint32_t{has_begun} << 14 | uint32_t{since} << 16;
    }
  };

  uint64_t window() const { return frames_.limit() / 2; }
  int confidence() const { return confidence_.load(std::memory_order_relaxed); }

  void begin_stay(HugeIndex huge, Use& use, unsigned far) {
    if (use.has_begun && use.far >= kMinFar) use.dense = 0;  // the last one was not
    use.has_begun = true;
    use.since = frames_.epoch();
    use.far = std::min(far, kHugePages - 4);
    table_.clear_fetched(huge);
  }

  void end_dense_stay(HugeIndex huge, Use& use) {
    use.far = 0;
    use.dense = std::min(use.dense + 1, kMaxDense);
    confidence_.store(std::min(confidence() + 1, kMaxConfidence), std::memory_order_relaxed);
    HugeIndex trial = huge;
    trial_.compare_exchange_strong(trial, kNone, std::memory_order_relaxed);
    if (use.dense < 2) return;
    use.whole = 1u << (use.dense - 2);
    table_.set(huge, HugeTable::kDense);
  }

  // One trial at a time is watched.
  void begin_trial(HugeIndex huge, Use use) {
    table_.clear(huge, HugeTable::kDense);
    use.has_begun = false;
    table_.set_use(huge, use.bits());
    HugeIndex none = kNone;
    if (!trial_.compare_exchange_strong(none, huge, std::memory_order_relaxed)) return;
    trial_since_.store(frames_.evicted(), std::memory_order_relaxed);
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
  std::atomic<HugeIndex> trial_{kNone};   // the one that comes by pages to see whether it is dense
  std::atomic<uint64_t> trial_since_{0};  // in evicted pages
};

static_assert(1u << 3 == HugeDensity::kMaxStays && HugeDensity::kMaxStays < 16);

}  // namespace farside::pager
