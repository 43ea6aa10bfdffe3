// Farside's near memory in small: which pages would be fetched, written and evicted at several shares of near memory,
// simulated for all shares in one pass over the accesses, with the budget that grows with the heap, the frames that
// evictors keep free, second chances and streams as the pager has them. LRU curves (shards.h) tell less about it than
// about systems that see every access. Of a large heap clusters of pages are sampled, and the budget with them;
// neighbours stay together, so that streams are still seen.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "cli/plan/reuse/shards.h"
#include "cli/plan/reuse/streams.h"

namespace farside::cli::plan {

enum NearEvent : uint8_t {
  kFirstTouch,        // of memory that never held anything, at random
  kStreamFirstTouch,  // or as the next of a stream
  kFetch,
  kStreamFetch,
  kUpgrade,  // the first write to a page that came for reading
  kDirtyEviction,
  kNearEvents
};
inline constexpr const char* kNearEventNames[kNearEvents] = {
    "first_touches", "stream_first_touches", "fetches", "stream_fetches", "upgrades", "dirty_evictions"};
using NearEvents = std::array<double, kNearEvents>;

class NearModel {
 public:
  static constexpr size_t kMaxShares = 32;
  // Shares from 0 to 1.
  NearModel(std::vector<double> shares, size_t most_pages);

  void access(uint64_t page, bool write);
  NearEvents events(size_t share) const;
  // Sum of the events, each times its price.
  Estimate cost(size_t share, const NearEvents& prices) const;
  double pages() const { return static_cast<double>(pages_.size()) * sample_.weight(); }  // that were ever accessed

 private:
  static constexpr unsigned kClusterBits = 4;  // pages of a cluster are sampled together

  // Bit i of a set: under share i.
  struct Page {
    uint32_t near = 0, dirty = 0, hot = 0;
    uint32_t for_reading = 0;  // it came for reading, and was not written since
    bool rewritten = false;    // it was so in an earlier stay: comes writable the next time
    unsigned group = 0;
    std::array<uint32_t, kMaxShares> left_at{};  // evictions of that share when it left
  };
  struct Share {
    double part;
    std::deque<uint64_t> queue;  // in order of arrival; pages that left the sample may still be in it
    size_t near = 0;
    uint32_t evictions = 0;
    Streams streams;
    std::array<NearEvents, SpatialSample::kGroups> events{};
  };

  // As pager/budget.h and pager/frames.h make them of a share, for the sampled pages.
  struct Room {
    size_t budget;  // pages that may be near
    size_t begin;   // with more of them near, evictors begin
    size_t rest;    // and rest when there are no more than that
  };

  Page* find_or_add(uint64_t page, bool* is_new);
  void leave_out(uint64_t cluster);
  void first_write(Page& page);
  void bring(size_t share, uint64_t number, Page& page, bool write, bool is_new);
  void evict(size_t share);
  Room room(const Share& share) const;
  void count(Share& share, const Page& page, NearEvent event) { share.events[page.group][event] += sample_.weight(); }

  std::vector<Share> shares_;
  uint32_t all_;
  SpatialSample sample_;  // of clusters
  std::unordered_map<uint64_t, Page> pages_;
};

}  // namespace farside::cli::plan
