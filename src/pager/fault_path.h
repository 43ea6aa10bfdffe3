// What happens when a thread touches a page that is absent or write-protected. The faulting thread does all of it
// itself: looks the page up, takes a frame, fetches over its own channel, maps, returns (DESIGN 3). It never evicts.
// Everything here is async-signal-safe and runs with all signals but SIGBUS and SIGSYS blocked, or on a handler thread.
#pragma once
#include "pager/budget.h"
#include "pager/evictor.h"
#include "pager/far_space.h"
#include "pager/frames.h"
#include "pager/page_table.h"
#include "pager/policy.h"
#include "pager/thread_slot.h"

namespace farside::pager {

enum class FaultOutcome {
  kResolved,   // try the access again
  kNotMapped,  // the address belongs to no allocation: the program's own error
  kReadOnly,   // a write to memory that the program made read-only: EFAULT, or a message that is out of date
};

struct FaultContext {
  remote::RemoteStore* store;
  FarSpace& space;
  PageTable& table;
  Policy& policy;
  Frames& frames;
  Budget& budget;
  ThreadRegistry& threads;
  Gate& gate;
  EvictorGroup& evictors;
};

// Ends the process: memory on the server cannot be reached any more. Never zeros, never a hang.
[[noreturn]] void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error);

// The channel of a thread, opened at first use.
transport::Channel& channel_of(ThreadSlot& thread, remote::RemoteStore* store);

class FaultPath {
 public:
  FaultPath(const FaultContext& context, bool prefetch) : c_(context), prefetch_(prefetch) {}

  FaultOutcome fault(uint64_t address, bool write);
  // As fault, but for a caller that is inside the gate already.
  FaultOutcome resolve(ThreadSlot& thread, PageIndex page, bool write);

  // Waits until the page has left kFetching, kEvicting and upgrading.
  void wait_for_owner(ThreadSlot& thread, PageIndex page);

 private:
  // Pages claimed for one fetch: the faulting page first, the others by prefetch.
  struct Claim {
    PageIndex pages[Prefetcher::kMaxWindow + 1];
    unsigned count = 0;
  };

  bool upgrade(ThreadSlot& thread, PageIndex page, PageWord word, FaultOutcome* outcome);
  bool bring(ThreadSlot& thread, PageIndex page, PageWord word, bool write);
  void take_frame(ThreadSlot& thread);
  void claim_window(ThreadSlot& thread, Claim& claim, PageState state, bool write);
  void fill_with_zeros(ThreadSlot& thread, const Claim& claim, bool write);
  void fetch(ThreadSlot& thread, const Claim& claim, bool write);
  void read_into_buffer(ThreadSlot& thread, const Claim& claim);
  void map_runs(ThreadSlot& thread, const Claim& claim, const std::byte* buffer, bool write);
  void map_run(PageIndex first, unsigned count, const std::byte* content, bool write);
  void publish(ThreadSlot& thread, const Claim& claim, bool write, PageWord before);
  void count_repeat(ThreadSlot& thread, PageIndex page);

  FaultContext c_;
  bool prefetch_;
};

}  // namespace farside::pager
