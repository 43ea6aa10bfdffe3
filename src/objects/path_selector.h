// Decides whether an evicted segment will be fetched as a page, or its objects one by one (Atlas 4.1).
//
// A segment that was fetched as a page before is judged by the share of its lines that were used since: the card access
// rate of Atlas. A segment that was not, because its objects were just created or moved there, gives no information:
// all of it was used. It is judged by earlier segments of the same origin that were fetched as pages, that is, by
// whether objects that were used together once are used together again. Some such segments are fetched as pages in any
// case, so that a change is noticed: one in 16, and fewer, down to one in 512, while no change is seen.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>

#include "abi/options.h"
#include "objects/segment.h"

namespace farside::objects {

class PathSelector {
 public:
  // page_share: a part of 1, of a segment's lines.
  PathSelector(Paths paths, double page_share) : paths_(paths), page_share_(page_share) {}

  // Whether to fetch the segment as a page. used_lines: lines used since it was fetched. Called by evictors, for open
  // segments.
  bool as_page(Segment& segment, uint64_t used_lines) {
    if (paths_ != Paths::kHybrid) return paths_ == Paths::kPageOnly;
    unsigned lines = (segment.used_units.load(std::memory_order_relaxed) + 3u) / 4u;
    bool well_used = std::popcount(used_lines) >= lines * page_share_;
    auto origin = static_cast<Origin>(segment.origin.load(std::memory_order_relaxed));
    if (used_lines == 0) return true;  // fetched ahead and never used: gives no information
    switch (origin) {
      case Origin::kMade:
      case Origin::kTaken: {
        Record& of = records_[static_cast<unsigned>(origin)];
        bool page = of.score.load(std::memory_order_relaxed) >= kMax / 2 || is_probe(of);
        Origin next = origin == Origin::kMade ? Origin::kWasMade : Origin::kWasTaken;
        if (page) segment.origin.store(static_cast<uint8_t>(next), std::memory_order_relaxed);
        return page;
      }
      case Origin::kWasMade:
      case Origin::kWasTaken: {
        record(records_[origin == Origin::kWasMade ? 0 : 1], well_used);
        segment.origin.store(static_cast<uint8_t>(Origin::kKnown), std::memory_order_relaxed);
        break;
      }
      case Origin::kKnown:
        break;
    }
    return well_used;
  }

 private:
  static constexpr int kMax = 1 << 12, kWeight = 16;
  static constexpr unsigned kMinPeriod = 16, kMaxPeriod = 512;

  // The record of segments of one origin. Evictors change it without a lock; a lost update does no harm.
  struct Record {
    std::atomic<int> score{kMax};  // 0 to kMax; at the start pages are preferred
    std::atomic<unsigned> period{kMinPeriod}, seen{0};
  };
  static bool is_probe(Record& of) {
    return of.seen.fetch_add(1, std::memory_order_relaxed) % of.period.load(std::memory_order_relaxed) == 0;
  }
  static void record(Record& of, bool well_used) {
    int now = of.score.load(std::memory_order_relaxed);
    of.score.store(now + ((well_used ? kMax : 0) - now) / kWeight, std::memory_order_relaxed);
    unsigned period = of.period.load(std::memory_order_relaxed);
    of.period.store(well_used ? kMinPeriod : std::min(2 * period, kMaxPeriod), std::memory_order_relaxed);
  }

  const Paths paths_;
  const double page_share_;
  Record records_[2];  // of kMade and kTaken
};

}  // namespace farside::objects
