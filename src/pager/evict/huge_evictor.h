// How whole huge pages leave near memory, for one evictor (evictor.h). The frame of a huge page is moved out of place
// by one UFFDIO_MOVE: nothing is copied, and no store can reach it afterwards, so its content is final. What was
// changed is written to the server from the frame, and the frame is free for the next huge page.
//
//   1 claim     all pages of the huge page, from kNear to kEvicting
//   2 move      out of place. Where that fails, the pages are near again; they go to the policy's queues
//   3 compare   with the sums from the time of the fetch, pages that may have been written without a fault
//   4 write     the changed pages
//   5 release   when the writes are acknowledged: the pages become kFar, and the frame goes to the pool or the kernel
//
// A huge page of which single pages were evicted, discarded, or written after a fork is no huge page any more. It goes
// by pages. docs/internals/huge_pages.md.
#pragma once
#include <span>

#include "pager/huge/frame_pool.h"
#include "pager/huge/huge_queue.h"
#include "pager/pages/page_table.h"
#include "pager/shared/far_access.h"
#include "pager/shared/page_memory.h"
#include "pager/shared/stats.h"

namespace farside::pager {

// The evictor of pages, whose channel is shared.
class ChannelOwner {
 public:
  // Completes writes of both evictors until one of them is acknowledged.
  virtual void wait_for_write() = 0;

 protected:
  ~ChannelOwner() = default;
};

class HugeEvictor {
 public:
  HugeEvictor(const PageMemory& pages, const HugePageMemory& huge, remote::RemoteStore* store, unsigned index,
              CounterBlock& counters, ChannelOwner& owner)
      : space_(pages.space),
        table_(pages.table),
        policy_(pages.policy),
        frames_(pages.frames),
        budget_(pages.budget),
        huge_table_(huge.table),
        huge_queue_(huge.queue),
        pool_(huge.pool),
        store_(store),
        index_(index),
        counters_(counters),
        owner_(owner) {}

  void set_channel(transport::Channel* channel) { channel_ = channel; }
  // Whether a huge page can be evicted now: few are in flight.
  bool is_ready() const;
  bool busy() const { return in_flight_ > 0; }
  // Completes huge pages whose writes are acknowledged. True: there was progress.
  bool poll();

  // For streams: makes a frame ready that they want, by the eviction of a huge page, or a new one if frames are free.
  // False: single pages must be evicted first, or no frame is wanted.
  bool provide_frame();
  // For pages: evicts a huge page if that is better than pages, for `pages` frames. False: it is not.
  bool free_frames(size_t pages);
  // The policy has no page to evict: any huge page. False: there is none.
  bool free_any();
  // Its pages leave one by one from now on.
  void break_up(HugeIndex huge);

 private:
  static constexpr unsigned kMaxInFlight = 2;
  struct Leaving {
    static constexpr unsigned kMaxWrites = kHugePages;  // requests
    HugeIndex huge = 0;
    Slot slot = -1;  // -1: free
    transport::Token tokens[kMaxWrites];
    unsigned writes = 0, acknowledged = 0;
    bool submitted = false;
    bool is_free() const { return slot < 0; }
  };
  bool evict(HugeIndex huge, HugeQueue::Kind kind);
  unsigned claim(HugeIndex huge, HugeBits* claimed, bool* may_retry);
  void unclaim(HugeIndex huge, const HugeBits& claimed);
  Slot move_out(HugeIndex huge);
  HugeBits find_changed(const Leaving& leaving);
  void write(Leaving& leaving, const HugeBits& changed);
  void submit(Leaving& leaving, std::span<const transport::ByteRange> ranges);
  void finish(Leaving& leaving);
  bool break_up_any();
  bool grow(uint64_t spare);
  bool pop_main(size_t pages, HugeIndex* huge);

  FarSpace& space_;
  PageTable& table_;
  Policy& policy_;
  Frames& frames_;
  Budget& budget_;
  HugeTable& huge_table_;
  HugeQueue& huge_queue_;
  FramePool& pool_;
  remote::RemoteStore* store_;
  unsigned index_;
  CounterBlock& counters_;
  ChannelOwner& owner_;
  transport::Channel* channel_ = nullptr;
  Leaving leaving_[kMaxInFlight];
  unsigned in_flight_ = 0;
  uint64_t credit_ = 0;  // pages that huge pages of the main queue owe: they leave in proportion to their number
};

}  // namespace farside::pager
