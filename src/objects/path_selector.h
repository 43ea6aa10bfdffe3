// Whether a segment that leaves comes back as a page, or its objects one by one (Atlas 4.1).
//
// A segment that has come back as a page before is judged by how much of it was used since: the card access rate. One
// that has not, because its objects were just made or just taken here, says nothing by that: all of it was used. It is
// judged by how others of its origin fared that came back as pages: that tells whether what was used together once is
// used together again. Some of them go as pages anyway, so that a change is noticed, and the fewer, the longer there
// was none: one in 16 to one in 512.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>

#include "abi/options.h"
#include "objects/segment.h"

namespace farside::objects {

class PathSelector {
 public:
  explicit PathSelector(Paths paths) : paths_(paths) {}

  // used_lines: what was used since the segment came. Called by evictors, for open segments.
  bool as_page(Segment& segment, uint64_t used_lines) {
    if (paths_ != Paths::kHybrid) return paths_ == Paths::kPageOnly;
    unsigned lines = (segment.used_units.load(std::memory_order_relaxed) + 3u) / 4u;
    bool well_used = static_cast<unsigned>(std::popcount(used_lines)) * 100 >= lines * kPageShare;
    auto origin = static_cast<Origin>(segment.origin.load(std::memory_order_relaxed));
    if (used_lines == 0) return true;  // it came ahead of a stream that did not reach it: that says nothing
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
        note(records_[origin == Origin::kWasMade ? 0 : 1], well_used);
        segment.origin.store(static_cast<uint8_t>(Origin::kKnown), std::memory_order_relaxed);
        break;
      }
      case Origin::kKnown:
        break;
    }
    return well_used;
  }

 private:
  static constexpr unsigned kPageShare = 80;  // per cent of its lines (Atlas 5.4)
  static constexpr int kMax = 1 << 12, kWeight = 16;
  static constexpr unsigned kOften = 16, kSeldom = 512;

  // How segments of one origin fared. Evictors change it without a lock; a change that is lost does no harm.
  struct Record {
    std::atomic<int> score{kMax};  // 0 .. kMax; begins with trust
    std::atomic<unsigned> every{kOften}, seen{0};
  };
  static bool is_probe(Record& of) {
    return of.seen.fetch_add(1, std::memory_order_relaxed) % of.every.load(std::memory_order_relaxed) == 0;
  }
  static void note(Record& of, bool well_used) {
    int now = of.score.load(std::memory_order_relaxed);
    of.score.store(now + ((well_used ? kMax : 0) - now) / kWeight, std::memory_order_relaxed);
    unsigned every = of.every.load(std::memory_order_relaxed);
    of.every.store(well_used ? kOften : std::min(2 * every, kSeldom), std::memory_order_relaxed);
  }

  const Paths paths_;
  Record records_[2];  // of kMade and kTaken
};

}  // namespace farside::objects
