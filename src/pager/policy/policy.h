// Which pages leave first. A policy keeps queues of near pages, sharded so that threads which fault do not meet on one
// lock (MAGE 4.2.2), and hands batches of candidates to the evictors. Accuracy is traded for no contention.
// All functions are thread-safe and safe under a fault.
//
// A process cannot see the processor's access bits. What a policy knows of a page's use is its hot bit, which is set by
//   - hints, at the first use after the bit was taken away (the inline guard lets all others pass);
//   - the first write to a page that came for reading;
//   - coming back soon after it left.
// docs/guide/policies.md shows what each makes of it.
//
//   policy         a look at a page is one cache miss on its word; looks for each page that leaves; when it pays
//   fifo           1. Scans, and programs whose hot bits mean nothing.
//   second-chance  1 and one for each hot page in its way. The default: not worse than fifo, and good with hints.
//   lru            about 2, and more for each hot page. Unevenly reused data: better than exact LRU with hints, and
//   from
//                  faults alone the best of all.
//   priority       2 and one for each hot page. Where hints say what is used once: streams, large objects beside an
//   index. for ranges     policy/policy_set.h
#pragma once
#include <span>

#include "abi/options.h"
#include "base/near.h"
#include "pager/page_table.h"

namespace farside::pager {

class Policy : public NearObject {
 public:
  virtual ~Policy() = default;
  // The page became near. `shard` is the faulting thread's slot number.
  virtual void insert(unsigned shard, PageIndex page) = 0;
  // Takes up to out.size() pages out of the queues, those to evict first. A page that turns out not to be near is the
  // caller's to skip; one that is near but may not leave now must be inserted again. Takes a bounded number of looks,
  // so it may find less than there is. Each evictor calls it with its own number, from one thread.
  virtual size_t select(unsigned evictor, std::span<PageIndex> out) = 0;
  // Pages in the queues: the near ones, and some that went away otherwise.
  virtual uint64_t queued() const = 0;
  virtual const char* name() const = 0;
};

// How each of them orders pages: policy/orders.h.
Policy* new_policy(PolicyKind kind, PageTable& table);

}  // namespace farside::pager
