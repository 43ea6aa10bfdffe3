// Which pages leave first. A policy keeps queues of near pages, sharded so that threads which fault do not meet on one
// lock (MAGE 4.2.2), and hands batches of candidates to the evictors. Accuracy is traded for no contention.
// All functions are thread-safe and safe under a fault.
#pragma once
#include <span>

#include "base/near.h"
#include "pager/page_table.h"

namespace farside::pager {

class Policy : public NearObject {
 public:
  virtual ~Policy() = default;
  // The page became near. `shard` is the faulting thread's slot number.
  virtual void insert(unsigned shard, PageIndex page) = 0;
  // Takes up to out.size() pages out of the queues, those to evict first. A page that turns out not to be near is the
  // caller's to skip; one that is near but may not leave now must be inserted again.
  virtual size_t select(unsigned evictor, std::span<PageIndex> out) = 0;
  virtual const char* name() const = 0;
};

// First in, first out.
Policy* new_fifo_policy(PageTable& table);
// First in, first out, but a page that was used again since it came (its hot bit) goes round once more (Eden 4).
Policy* new_second_chance_policy(PageTable& table);

}  // namespace farside::pager
