// A model of Farside's near memory: the pages that would be fetched, written and evicted at several shares of near
// memory, simulated for all shares in one pass over the accesses. It has the pager's budget that grows with the heap,
// the frames that evictors keep free, its policy and streams. An LRU curve (shards.h) describes Farside less well,
// because the pager does not see every access. For a large heap, clusters of adjacent pages are sampled, so that
// streams remain visible, and the budget is scaled.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/plan/reuse/near_queues.h"
#include "tools/plan/reuse/shards.h"
#include "tools/plan/reuse/streams.h"

namespace farside::plan {

enum NearEvent : uint8_t {
  kFirstTouch,        // first access to a page, at random
  kStreamFirstTouch,  // first access to a page, in a stream
  kFetch,
  kStreamFetch,
  kUpgrade,  // the first write to a page that was fetched for reading
  kDirtyEviction,
  kNearEvents
};
inline constexpr const char* kNearEventNames[kNearEvents] = {
    "first_touches", "stream_first_touches", "fetches", "stream_fetches", "upgrades", "dirty_evictions"};
using NearEvents = std::array<double, kNearEvents>;

class NearModel {
 public:
  static constexpr size_t kMaxShares = 32;
  // Shares from 0 to 1, at most kMaxShares.
  NearModel(std::vector<double> shares, size_t max_pages);

  void access(uint64_t page, bool write);
  NearEvents events(size_t share) const;
  // The sum of the events times their prices.
  Estimate cost(size_t share, const NearEvents& prices) const;
  double pages() const { return static_cast<double>(pages_.size()) * sample_.weight(); }  // accessed pages

 private:
  static constexpr unsigned kClusterBits = 4;  // 2^4 pages form a cluster; they are sampled together

  // Bit i of a mask: with share i.
  struct Page {
    uint32_t near = 0, dirty = 0;
    uint32_t main = 0;         // was in the main queue in its last stay
    uint32_t for_reading = 0;  // fetched for reading and not written since
    bool rewritten = false;    // written after such a fetch before: the next fetch maps it writable
    unsigned group = 0;
    std::array<uint32_t, kMaxShares> evicted_at{};  // value of Share::evictions when it was evicted
  };
  struct Share {
    double fraction;
    NearQueues queues;  // pages that left the sample may still be in them
    size_t near = 0;
    uint32_t evictions = 0;
    Streams streams;
    std::array<NearEvents, SpatialSample::kGroups> events{};
  };

  // The limits of a share for the sampled pages, as pager/pages/budget.h and pager/pages/frames.h compute them.
  struct Room {
    size_t budget;  // maximum of near pages
    size_t begin;   // number of near pages above which evictors start
    size_t rest;    // number at which they stop
  };

  Page* find_or_add(uint64_t page, bool* is_new);
  void remove_cluster(uint64_t cluster);
  void first_write(Page& page);
  void fetch(size_t share, uint64_t number, Page& page, bool write, bool is_new);
  void evict(size_t share);
  Room room(const Share& share) const;
  void count(Share& share, const Page& page, NearEvent event) { share.events[page.group][event] += sample_.weight(); }

  std::vector<Share> shares_;
  uint32_t all_;
  SpatialSample sample_;  // of clusters
  std::unordered_map<uint64_t, Page> pages_;
};

}  // namespace farside::plan
