// How pages become near: frames, claims, reads from far memory, and mapping. Called by faults (fault_path.h), hints
// (hint_path.h), threads that wait for a page, and evictors that map windows ahead of a stream.
//
// A page takes these steps; docs/internals/page_states.md has the states:
//   1 claim     take a frame, move the page to kFetching with the caller as its owner
//   2 read      start a read of all pages of the claim, or none where far memory can be read in place
//   3 map       UFFDIO_COPY of the content, one call for each run of neighbours
//   4 publish   move the pages to kNear and give them to the policy
// Steps 3 and 4 are done by any thread that holds the lock of the read queue: the claimant, a thread that waits for one
// of the pages, or an evictor.
//
// Everything here is async-signal-safe.
#pragma once
#include <atomic>
#include "pager/evict/evictor_group.h"
#include "pager/fault/huge_path.h"
#include "pager/pages/budget.h"
#include "pager/pages/frames.h"
#include "pager/pages/page_table.h"
#include "pager/policy/policy.h"
#include "pager/shared/far_access.h"
#include "pager/shared/page_memory.h"
#include "pager/space/far_space.h"
#include "pager/thread/thread_slot.h"

namespace farside::pager {

// A part of a page, and the near memory into which its bytes are read.
struct SubpageRead {
  static constexpr size_t kMaxPerRequest = 64;
  uint64_t address;
  uint32_t bytes;
  std::byte* to;
  bool read = false;  // set by the call: the page was far, and the bytes were read
};

class FetchPath {
 public:
  FetchPath(const PageMemory& pages, const ThreadsAndGate& inside, remote::RemoteStore* store, EvictorGroup& evictors,
            HugePath& huge);

  // ---- Claims ----

  // Takes a frame without waiting. False: no frame is free.
  bool try_take_frame(ThreadSlot& thread);
  // Takes a frame; waits for the evictors if none is free.
  void take_frame(ThreadSlot& thread);
  // Moves the page from the state of `word` to kFetching. The caller has taken a frame for it, which is given back on
  // failure. False: the page's word has changed.
  bool claim(ThreadSlot& thread, PageIndex page, PageWord word);
  // Claims those pages of the window that are in `state`, as long as frames are free. Returns how many pages of the
  // window were considered.
  unsigned claim_window(ThreadSlot& thread, Claim& claim, const Window& window, PageState state);

  // ---- Reads. The pages of the claim are in kFetching. ----

  // Maps the pages of the claim with zeros. They were never written.
  void fill_with_zeros(ThreadSlot& thread, const Claim& claim);
  // Maps the pages at once where far memory can be read in place; else starts a read of them. A fiber's read may be
  // delayed by a few microseconds, so that it is sent together with others.
  void fetch(const Caller& caller, const Claim& claim);
  // Starts a read of the stream's next window while the program uses the present one.
  void start_next_window(ThreadSlot& thread, const Window& window, bool write);
  // The last fault showed that a stream has used its window: records it in the pages.
  void record_used_window(ThreadSlot& thread);

  // ---- Completion ----

  // Completes the calling thread's read of a page: waits for it, and maps what was read. False: another thread has
  // completed it.
  bool finish_own(ThreadSlot& thread, PageIndex page);
  // Completes the owner's reads that have arrived, unless another thread is doing so. True: something was completed.
  bool complete_arrived(ThreadSlot& self, ThreadSlot& owner);
  // The same for the reads of the calling thread. For a worker whose fibers wait for pages.
  void poll_reads();
  // For evictors: maps some pages of windows that have arrived, except for the first page of each window, whose fault
  // shows that the stream has reached the window. Never waits. False: there was nothing to map.
  bool map_ahead();
  // Completes all of the owner's reads in flight. Called by a fork, when no thread is inside the gate, and by a thread
  // that ends, for its own reads.
  void drain(ThreadSlot& self, ThreadSlot& owner);

  // Reads parts of far pages in one request, for objects that are fetched one by one. The pages stay far. Not
  // async-signal-safe. If another thread makes the page near and writes it meanwhile, the bytes may be outdated; the
  // caller must exclude that or detect it.
  void read_subpages(std::span<SubpageRead> reads, bool may_suspend);

 private:
  void wait_for_frame(ThreadSlot& thread);
  void warn_of_wait(uint64_t start);
  void complete_others(ThreadSlot& thread);
  bool finish_fetch_of(ThreadSlot& thread, PageIndex page, bool* marker, bool* write);
  void record_used(ThreadSlot& thread, PageIndex page);
  void start_read(ThreadSlot& thread, const Claim& claim, bool gather);
  void finish(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch);
  void finish_arrived(ThreadSlot& self, ThreadSlot& owner, Fetch& fetch);
  void finish_first(ThreadSlot& self, Fetch& fetch);
  void finish_oldest(ThreadSlot& thread);
  bool has_arrived(ThreadSlot& owner, Fetch& fetch);
  bool map_ahead_of(ThreadSlot& self, ThreadSlot& owner);
  void count_ahead(ThreadSlot& thread, const Fetch& fetch);
  void map_and_publish(ThreadSlot& thread, const Claim& claim, unsigned begin, unsigned end, const Content& content,
                       bool stored);
  void map_runs(const Claim& claim, unsigned begin, unsigned end, const Content& content);
  void map_run(PageIndex first, unsigned count, const std::byte* content, bool write);
  void publish(ThreadSlot& thread, const Claim& claim, unsigned begin, unsigned end, bool stored);
  size_t start_subpage_reads(ThreadSlot& thread, std::span<SubpageRead> reads, transport::ByteRange* ranges);
  void send_subpage_reads(ThreadSlot& thread);
  bool finish_subpage_reads(ThreadSlot& owner, bool wait);

  FarSpace& space_;
  PageTable& table_;
  Policy& policy_;
  Frames& frames_;
  Budget& budget_;
  Twins& twins_;
  SampleLog& samples_;
  ThreadRegistry& threads_;
  Gate& gate_;
  remote::RemoteStore* store_;
  EvictorGroup& evictors_;
  HugePath& huge_;
  // With more threads that wait for a frame, none spins: the evictors and the server need the cores.
  const unsigned max_spinning_;
  std::atomic<uint64_t> warned_ns_{0};            // the time of the last warning
  std::atomic<uint64_t> completed_others_ns_{0};  // the time of the last complete_others()
};

}  // namespace farside::pager
