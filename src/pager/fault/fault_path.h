// What happens when a thread touches a page that is absent or write-protected. The faulting thread does all of it
// itself: it looks the page up, takes a frame, fetches over its own channel, maps, and returns. It never evicts (MAGE
// 4.1).
//
// resolve() is a loop over the page's state that ends when the access can be made. fault_in() claims an absent page
// and, where far memory is not read in place, only starts its read: the next turn of the loop then finds the page in
// kFetching with the thread itself as its owner, and completes the read or suspends the fiber.
//
// Everything here is async-signal-safe. It runs in a SIGBUS handler, during which no handler of the program runs
// (docs/internals/locking.md), or in the handler thread.
#pragma once
#include "pager/fault/fetch_path.h"

namespace farside::pager {

enum class FaultOutcome {
  kResolved,   // try the access again
  kNotMapped,  // the address belongs to no allocation: an error of the program
  kReadOnly,   // a write to memory that the program made read-only: EFAULT, or a message that is out of date
};

class FaultPath {
 public:
  FaultPath(const PageMemory& pages, const ThreadsAndGate& inside, FetchPath& fetches, HugePath& huge, bool prefetch)
      : space_(pages.space),
        table_(pages.table),
        frames_(pages.frames),
        twins_(pages.twins),
        samples_(pages.samples),
        threads_(inside.threads),
        gate_(inside.gate),
        fetches_(fetches),
        huge_(huge),
        prefetch_(prefetch) {}

  // may_suspend: as Caller::may_suspend.
  FaultOutcome fault(uint64_t address, bool write, bool may_suspend = false);
  // As fault, but for a caller that is inside the gate already.
  FaultOutcome resolve(const Caller& caller, PageIndex page, bool write);

  // Waits until the page has left kFetching, kEvicting and upgrading.
  void wait_for_owner(ThreadSlot& thread, PageIndex page);
  // Suspends the calling fiber until the page has left kFetching and kEvicting.
  void suspend_fiber(ThreadSlot& thread, PageIndex page);
  // Lifts the write protection of a near page and marks it dirty. False: the page's word has changed.
  bool upgrade(ThreadSlot& thread, PageIndex page, PageWord word, FaultOutcome* outcome);

 private:
  // Counters before a fault.
  struct Before {
    uint64_t touched, waited;
  };

  void count_touch(ThreadSlot& thread, const Before& before, uint64_t took);
  bool fault_in(const Caller& caller, PageIndex page, PageWord word, bool write);
  Window claim_stream(ThreadSlot& thread, Claim& claim, PageState state);
  bool presume_write(ThreadSlot& thread, PageIndex page, PageWord word);
  bool protect_again(PageIndex page, std::byte* address);
  void count_repeat(ThreadSlot& thread, PageIndex page);

  FarSpace& space_;
  PageTable& table_;
  Frames& frames_;
  Twins& twins_;
  SampleLog& samples_;
  ThreadRegistry& threads_;
  Gate& gate_;
  FetchPath& fetches_;
  HugePath& huge_;
  bool prefetch_;
};

}  // namespace farside::pager
