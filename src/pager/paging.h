// What programs and the layers above do with pages of far memory: faults, hints, pins, and what objects need of them.
// Faults are served on the faulting thread.
#pragma once
#include <span>

#include "pager/fault/fault_path.h"
#include "pager/fault/hint_path.h"
#include "pager/range/range_ops.h"

namespace farside::pager {

class Paging {
 public:
  Paging(PageTable& table, const ThreadsAndGate& inside, EvictorGroup& evictors, HugePath& huge, FetchPath& fetches,
         FaultPath& faults, HintPath& hints, RangeOps& ranges)
      : table_(table),
        threads_(inside.threads),
        gate_(inside.gate),
        evictors_(evictors),
        huge_(huge),
        fetches_(fetches),
        faults_(faults),
        hints_(hints),
        ranges_(ranges) {}

  // ---- Faults. Async-signal-safe; no handler of the program may run meanwhile. ----

  // Makes the page at `address`, which must be in far space, present and, for a write, writable. may_suspend: as
  // Caller::may_suspend.
  FaultOutcome fault(uint64_t address, bool write, bool may_suspend = false) {
    return faults_.fault(address, write, may_suspend);
  }
  // Called by a worker between fibers while one of them waits for a page. Signals are blocked.
  void poll_reads() { fetches_.poll_reads(); }

  // ---- Pins, for system calls: pinned pages are not evicted until unpinned. Async-signal-safe. ----

  // Makes the pages near (writable if write) and pins them. Returns the number of bytes pinned from `address` on: all,
  // or up to a page that is not far memory, belongs to no allocation, or is sealed.
  size_t pin(const void* address, size_t bytes, bool write);
  void unpin(const void* address, size_t bytes);

  // ---- Announcements. Ordinary code. ----

  // Announces the next accesses of ordinary code. Any hint is harmless. Returns the number of pages fetched.
  unsigned hint(const Hint& hint);
  // Reads a range ahead (HintPath::fetch_range). What is not mapped, or not far memory, is skipped.
  void fetch_range(std::byte* address, size_t bytes, bool write, bool wait);
  // The pages will not be used soon: those that are near are evicted next.
  void evict_first(const std::byte* address, size_t bytes = kPageSize);
  // Advice for huge pages and streams (HugePath::advise).
  void advise(std::byte* address, size_t bytes, int advice);
  // Whether near memory may consist of huge pages. Known after the start of the threads.
  bool uses_huge_pages() const { return huge_.is_open(); }
  // Whether it will, as soon as the pager's threads run.
  bool can_use_huge_pages() const { return huge_.can_open(); }
  // As HugePath::assume_other_writers.
  void assume_other_writers() { huge_.assume_other_writers(); }

  // ---- For the layer of objects. Ordinary code. ----

  // As FetchPath::read_subpages. A fiber may be suspended meanwhile.
  void read_subpages(std::span<SubpageRead> reads);
  // The committed pages hold objects until they are discarded: the observer is called when one of them is evicted.
  void mark_objects(std::byte* address, size_t bytes);
  // No prefetch window includes the page any more: its objects are fetched one by one.
  void use_object_path(uint64_t address) { table_[table_.index_of(address)].set(PageWord::kObjectPath); }

  // To be called by a thread that ends.
  void detach_thread();

 private:
  PageTable& table_;
  ThreadRegistry& threads_;
  Gate& gate_;
  EvictorGroup& evictors_;
  HugePath& huge_;
  FetchPath& fetches_;
  FaultPath& faults_;
  HintPath& hints_;
  RangeOps& ranges_;
};

}  // namespace farside::pager
