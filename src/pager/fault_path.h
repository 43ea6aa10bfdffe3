// What happens when a thread touches a page that is absent or write-protected. The faulting thread does all of it
// itself: looks the page up, takes a frame, fetches over its own channel, maps, returns (DESIGN 3). It never evicts.
// Everything here is async-signal-safe and no handler of the program runs meanwhile (docs/internals/locking.md), or it is a
// handler thread.
#pragma once
#include "pager/budget.h"
#include "pager/evictor.h"
#include "pager/far_space.h"
#include "pager/frames.h"
#include "pager/page_table.h"
#include "pager/policy/policy.h"
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
  Twins& twins;
  ThreadRegistry& threads;
  Gate& gate;
  EvictorGroup& evictors;
};

// Ends the process: memory on the server cannot be reached any more. Never zeros, never a hang.
[[noreturn]] void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error);

// What a program says about its next accesses (include/farside/farside.h).
struct Hint {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool write = false;
  unsigned priority = 0;           // 0 .. 3; see PageWord::kPriorityShift
  unsigned ahead = 0, behind = 0;  // pages
  bool wait = true;                // for the bytes, not for what is ahead or behind
};

// A part of a page, and where its bytes go: near memory.
struct SubpageRead {
  static constexpr size_t kMaxPerRequest = 64;
  uint64_t address;
  uint32_t bytes;
  std::byte* to;
  bool read = false;  // whether it was: its page was far
};

class FaultPath {
 public:
  static constexpr unsigned kMaxHintPages = 1024;

  FaultPath(const FaultContext& context, bool prefetch) : c_(context), prefetch_(prefetch) {}

  // may_suspend: the caller is a fiber that may be suspended while its page is fetched (DESIGN 8).
  FaultOutcome fault(uint64_t address, bool write, bool may_suspend = false);
  // As fault, but for a caller that is inside the gate already.
  FaultOutcome resolve(ThreadSlot& thread, PageIndex page, bool write, bool may_suspend = false);

  // Fetches what the hint names, in a few requests, before an access does so with a fault. Never waits for a frame.
  // Returns the pages fetched.
  unsigned hint(const Hint& hint, bool may_suspend);

  // Whether the hint has nothing to do but to say that pages are used, and does so. Without locks and system calls.
  bool is_satisfied(const Hint& hint);

  // Reads the pieces whose pages are far, which stay so, in one request: for what is taken from a page one by one
  // (DESIGN 7). From ordinary code; what the bytes are worth while others fault_in the page near and write them is the
  // caller's affair.
  void read_subpages(std::span<SubpageRead> pieces, bool may_suspend);

  // Waits until the page has left kFetching, kEvicting and upgrading.
  void wait_for_owner(ThreadSlot& thread, PageIndex page);

  // Finishes what has arrived of the calling thread's reads: for a worker whose fibers wait for pages.
  void poll_reads();

  // For background threads: maps some pages that have arrived of windows under way, but for each window's first one,
  // whose fault is to tell that its stream has come there. Never waits. False: there was nothing to map.
  bool map_ahead();

  // Finishes all reads under way of the given thread's line. fork calls it when nobody is inside the gate; a thread
  // that ends calls it for itself.
  void drain(ThreadSlot& self, ThreadSlot& owner);

 private:
  struct HintClaims {
    Claim far, untouched;
    unsigned fetched = 0;  // far pages of claims that were flushed
  };

  bool upgrade(ThreadSlot& thread, PageIndex page, PageWord word, FaultOutcome* outcome);
  bool fault_in(ThreadSlot& thread, PageIndex page, PageWord word, bool write, bool may_suspend);
  bool try_take_frame(ThreadSlot& thread);
  void take_frame(ThreadSlot& thread);
  bool presume_write(ThreadSlot& thread, PageIndex page, PageWord word);
  Window claim_window(ThreadSlot& thread, Claim& claim, PageState state);
  unsigned claim_pages(ThreadSlot& thread, Claim& claim, const Window& window, PageState state);
  void fill_with_zeros(ThreadSlot& thread, const Claim& claim);
  void fetch(ThreadSlot& thread, const Claim& claim, bool may_suspend);
  bool reads_directly(ThreadSlot& thread);
  void start_next_window(ThreadSlot& thread, const Window& window, bool write);
  void start_read(ThreadSlot& thread, const Claim& claim, bool gather);
  void suspend_fiber(ThreadSlot& thread, PageIndex page);
  bool finish_own(ThreadSlot& thread, PageIndex page);
  void finish(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch);
  void finish_first(ThreadSlot& self, Fetch& fetch);
  bool has_arrived(ThreadSlot& owner, Fetch& fetch);
  void finish_arrived(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch);
  void note_ahead(ThreadSlot& thread, const Fetch& fetch);
  bool map_ahead_of(ThreadSlot& self, ThreadSlot& owner);
  void finish_oldest(ThreadSlot& thread);
  void send_subpage_reads(ThreadSlot& thread);
  bool finish_subpage_reads(ThreadSlot& owner, bool wait);
  bool complete_arrived(ThreadSlot& self, ThreadSlot& owner);
  void map_and_publish(ThreadSlot& thread, const Claim& claim, unsigned begin, unsigned end, const Content& content,
                       bool stored);
  void map_runs(const Claim& claim, unsigned begin, unsigned end, const Content& content);
  void map_run(PageIndex first, unsigned count, const std::byte* content, bool write);
  void publish(ThreadSlot& thread, const Claim& claim, unsigned begin, unsigned end, bool stored);
  void note_use(PageIndex page);
  bool hint_page(ThreadSlot& thread, HintClaims& claims, PageIndex page, const Hint& hint, bool asked,
                 bool may_suspend);
  void flush(ThreadSlot& thread, HintClaims& claims, bool may_suspend);
  void count_repeat(ThreadSlot& thread, PageIndex page);

  FaultContext c_;
  bool prefetch_;
};

}  // namespace farside::pager
