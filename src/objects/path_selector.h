// Whether a segment that leaves comes back as a page, or its objects one by one (Atlas 4.1).
//
// A segment that has come back as a page before is judged by how much of it was used since: the card access rate. One
// that has not, because its objects were just made or just taken here, says nothing by that: all of it was used. It is
// judged by how others of its origin fared that came back as pages: that tells whether what was used together once is
// used together again. One in kProbe of them goes as a page anyway, so that a change is noticed.
#pragma once
#include <atomic>
#include <bit>

#include "objects/segment.h"

namespace farside::objects {

// How objects of segments that leave come back.
enum class Paths { kHybrid, kPageOnly, kObjectOnly };

struct Settings {
  Paths paths = Paths::kHybrid;
  unsigned page_share = 80;  // per cent of a segment's used lines: used so many, it comes back as a page (Atlas 5.4)
  static Settings from_environment();
};

class PathSelector {
 public:
  explicit PathSelector(const Settings& settings) : settings_(settings) {}

  // touched: what was used since the segment came. Called by evictors, for open segments.
  bool as_page(Segment& segment, uint64_t touched) {
    if (settings_.paths != Paths::kHybrid) return settings_.paths == Paths::kPageOnly;
    unsigned lines = (segment.used_units.load(std::memory_order_relaxed) + 3u) / 4u;
    bool well_used = static_cast<unsigned>(std::popcount(touched)) * 100 >= lines * settings_.page_share;
    auto origin = static_cast<Origin>(segment.origin.load(std::memory_order_relaxed));
    if (touched == 0) return true;  // it came ahead of a stream that did not reach it: that says nothing
    switch (origin) {
      case Origin::kMade:
      case Origin::kTaken: {
        std::atomic<int>& score = scores_[static_cast<unsigned>(origin)];
        bool page = score.load(std::memory_order_relaxed) >= kMost / 2 || probe();
        Origin next = origin == Origin::kMade ? Origin::kWasMade : Origin::kWasTaken;
        if (page) segment.origin.store(static_cast<uint8_t>(next), std::memory_order_relaxed);
        return page;
      }
      case Origin::kWasMade:
      case Origin::kWasTaken: {
        std::atomic<int>& score = scores_[origin == Origin::kWasMade ? 0 : 1];
        int now = score.load(std::memory_order_relaxed);
        score.store(now + ((well_used ? kMost : 0) - now) / kWeight, std::memory_order_relaxed);
        segment.origin.store(static_cast<uint8_t>(Origin::kKnown), std::memory_order_relaxed);
        break;
      }
      case Origin::kKnown:
        break;
    }
    return well_used;
  }

 private:
  static constexpr int kMost = 1 << 12, kWeight = 16;
  static constexpr unsigned kProbe = 32;

  bool probe() { return probes_.fetch_add(1, std::memory_order_relaxed) % kProbe == 0; }

  const Settings settings_;
  std::atomic<int> scores_[2] = {kMost, kMost};  // of kMade and kTaken: 0 .. kMost; begins with trust
  std::atomic<unsigned> probes_{0};
};

}  // namespace farside::objects
