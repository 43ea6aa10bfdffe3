// Replays traces of page accesses against the real policies, and against two that no pager can have: exact LRU, which
// observes every access, and the optimum of Belady, which knows the future. It moves no pages and no content; it only
// computes which pages would be near. Used by tests and by `farside bench policies`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "abi/options.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

// The pages that a program accesses, in order. All accesses are reads.
struct Trace {
  std::string name;
  PageIndex pages = 0;      // pages 0 to pages - 1 are accessed
  PageIndex once_from = 0;  // pages from here on are rarely used; a hint gives them priority 3
  std::vector<PageIndex> accesses;
};

// The probability of a page follows Zipf's law with this skew. Popular pages are at random places.
Trace zipf_trace(PageIndex pages, double skew, size_t length, uint64_t seed);
// Every second access follows Zipf's law in the first half of the pages; the others walk through the second half in
// turn.
Trace scan_zipf_trace(PageIndex pages, double skew, size_t length, uint64_t seed);
// All pages in turn, repeatedly.
Trace loop_trace(PageIndex pages, size_t length);

// Phases of equal length: each accesses one part of the pages at random, uniformly, the parts overlap by half.
Trace phases_trace(PageIndex pages, unsigned phases, size_t length, uint64_t seed);
// `hot` accesses at random in `hot_pages` pages for each page of a stream through the others.
Trace hot_stream_trace(PageIndex pages, PageIndex hot_pages, unsigned hot, size_t length, uint64_t seed);

struct Outcome {
  uint64_t hits = 0;         // accesses to near pages
  uint64_t misses = 0;       // accesses that fetched the page
  uint64_t soft_faults = 0;  // hits on pages that were near but unmapped
  double hit_rate() const { return static_cast<double>(hits) / static_cast<double>(hits + misses); }
};

// The information that a policy gets of an access to a near page.
enum class Known {
  kFaults,    // none: no access has a hint
  kUses,      // every access has a hint: the hot bit is set
  kPriority,  // the same, and hints on pages from once_from on have priority 3
};

// Four threads take turns at random, each with its own shard. Pages are evicted in batches, as in the pager.
Outcome simulate_policy(const Trace& trace, uint64_t near_pages, PolicyKind kind, Known known);
Outcome simulate_exact_lru(const Trace& trace, uint64_t near_pages);
Outcome simulate_optimum(const Trace& trace, uint64_t near_pages);

// A policy that Farside does not have (docs/decisions/0006): first in, first out, but a page that would be evicted is
// only unmapped first. It stays near until `probation` of all near pages were made near after it. An access meanwhile
// is a soft fault, after which the page counts as new.
Outcome simulate_probation(const Trace& trace, uint64_t near_pages, double probation);

}  // namespace farside::pager
