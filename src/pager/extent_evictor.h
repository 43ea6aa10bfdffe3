// How whole extents leave near memory, for one evictor (evictor.h). The frame of an extent is moved out of place by one
// UFFDIO_MOVE: nothing is copied, and no store can reach it afterwards, so its content is final. What was changed is
// written to the server from the frame, and the frame is free for the next extent.
//
//   1 claim     all pages of the extent, from kNear to kEvicting
//   2 move      out of place. Where that fails, the pages are near again; they go to the policy's queues
//   3 compare   with the sums from the time of the fetch, pages that may have been written without a fault
//   4 write     the changed pages
//   5 release   when the writes are acknowledged: the pages become kFar, and the frame goes to the pool or the kernel
//
// An extent of which single pages were evicted, discarded, or written after a fork is no huge page any more. It goes by
// pages. docs/internals/extents.md.
#pragma once
#include <span>

#include "pager/context.h"
#include "pager/extents/extent_queue.h"
#include "pager/extents/frame_pool.h"
#include "pager/pages/page_table.h"
#include "pager/stats.h"

namespace farside::pager {

class Evictor;

class ExtentEvictor {
 public:
  ExtentEvictor(const Context& context, unsigned index, CounterBlock& counters, Evictor& evictor)
      : c_(context), index_(index), counters_(counters), evictor_(evictor) {}

  void set_channel(transport::Channel* channel) { channel_ = channel; }
  // Whether an extent can be evicted now: few are in flight.
  bool is_ready() const;
  bool busy() const { return in_flight_ > 0; }
  // Completes extents whose writes are acknowledged. True: there was progress.
  bool poll();

  // For streams: makes a frame ready that they want, by the eviction of an extent, or a new one if frames are free.
  // False: single pages must be evicted first, or no frame is wanted.
  bool provide_frame();
  // For pages: evicts an extent if that is better than pages, for `pages` frames. False: it is not.
  bool free_frames(size_t pages);
  // The policy has no page to evict: any extent. False: there is none.
  bool free_any();

 private:
  static constexpr unsigned kMaxInFlight = 2;
  struct Leaving {
    static constexpr unsigned kMaxWrites = kExtentPages;  // requests
    ExtentIndex extent = 0;
    Slot slot = -1;  // -1: free
    transport::Token tokens[kMaxWrites];
    unsigned writes = 0, acknowledged = 0;
    bool submitted = false;
    bool is_free() const { return slot < 0; }
  };
  bool evict(ExtentIndex extent, ExtentQueue::Kind kind);
  unsigned claim(ExtentIndex extent, ExtentBits* claimed, bool* may_retry);
  void unclaim(ExtentIndex extent, const ExtentBits& claimed);
  Slot move_out(ExtentIndex extent);
  void break_up(ExtentIndex extent);
  ExtentBits find_changed(const Leaving& leaving);
  void write(Leaving& leaving, const ExtentBits& changed);
  void submit(Leaving& leaving, std::span<const transport::Segment> segments);
  void finish(Leaving& leaving);
  bool break_up_any();
  bool grow(uint64_t spare);
  bool pop_main(size_t pages, ExtentIndex* extent);

  Context c_;
  unsigned index_;
  CounterBlock& counters_;
  Evictor& evictor_;  // whose channel this one shares
  transport::Channel* channel_ = nullptr;
  Leaving leaving_[kMaxInFlight];
  unsigned in_flight_ = 0;
  uint64_t credit_ = 0;  // pages that extents of the main queue owe: they leave in proportion to their number
};

}  // namespace farside::pager
