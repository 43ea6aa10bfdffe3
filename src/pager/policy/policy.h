// The interface of eviction policies: which near pages are evicted first. A policy has queues of near pages, sharded so
// that faulting threads do not contend for one lock (MAGE 4.2.2), and gives evictors batches of candidates. It trades
// accuracy for scalability. All functions are thread-safe and async-signal-safe.
//
// A process cannot read the processor's access bits. A policy learns of a page's use by its hot bit, which is set by
//   - hints, at the first use after the bit was cleared (the inline check lets no other hint pass);
//   - a fetch soon after the page's eviction: is_hot().
// docs/internals/policies.md shows what each policy makes of it.
//
//   policy         examinations of page words (one cache miss each) for each evicted page; suitable for
//   2q             1, and one for each page that enters or stays in the main queue. The default: a hot set stays beside
//                  streams, and a part of a loop that does not fit.
//   fifo           1. A baseline; programs whose working set moves on all the time.
//   lru            about 2, and more for each hot page. Better than exact LRU with hints.
//   priority       2, and one for each hot page. With hints that state what is used once: streams, large objects beside
//                  an index.
//
// For ranges of addresses with their own policies see policy_set.h.
#pragma once
#include <span>

#include "abi/options.h"
#include "base/near.h"
#include "pager/pages/page_table.h"

namespace farside::pager {

class Policy : public NearObject {
 public:
  virtual ~Policy() = default;
  // The page was made near. `shard` is the thread slot number of the calling thread.
  virtual void insert(unsigned shard, PageIndex page) = 0;
  // Takes up to out.size() pages out of the queues, those to evict first. The caller skips a page that is not near any
  // more, and inserts one that is near but cannot be evicted now again. The number of pages examined is bounded, so it
  // may find fewer pages than there are. Each evictor calls it with its own number, from one thread.
  virtual size_t select(unsigned evictor, std::span<PageIndex> out) = 0;
  // The number of pages in the queues: the near ones, and some that are not near any more.
  virtual uint64_t queued() const = 0;
  // How many of them leave before any page that was used repeatedly; 0: the policy makes no such difference.
  virtual uint64_t surplus() const = 0;
  // How many near pages are in no queue of a policy: those of huge pages. Called by evictors.
  virtual void set_elsewhere(uint64_t pages) = 0;
  virtual const char* name() const = 0;
  // Whether a far page is hot when it is fetched again, `age` evictions after its own. limit: the number of pages that
  // may be near.
  virtual bool is_hot(unsigned shard, PageIndex page, PageWord word, uint64_t age, uint64_t limit) = 0;
};

}  // namespace farside::pager
