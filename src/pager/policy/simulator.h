// Replays traces of page accesses against the real policies, and against two that no pager can have: exact LRU, which
// sees every access, and Belady's optimum, which sees the future. No kernel paging and no content: only which pages
// would be near. Used by tests and by `farside bench policies`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "abi/options.h"
#include "pager/page_word.h"

namespace farside::pager {

// What a program touches, page by page. All accesses are reads.
struct Trace {
  std::string name;
  PageIndex pages = 0;      // 0 .. pages - 1 are touched
  PageIndex once_from = 0;  // pages from here on are used once in a while; a hint gives them priority 3
  std::vector<PageIndex> accesses;
};

// Every page has a probability by Zipf's law with this skew; popular pages lie anywhere.
Trace zipf_trace(PageIndex pages, double skew, size_t length, uint64_t seed);
// Every second access is by Zipf's law to the first half of the pages; the others walk through the second half in turn.
Trace scan_zipf_trace(PageIndex pages, double skew, size_t length, uint64_t seed);
// All pages in turn, again and again.
Trace loop_trace(PageIndex pages, size_t length);

struct Outcome {
  uint64_t hits = 0;         // accesses to near pages
  uint64_t misses = 0;       // accesses that fetched
  uint64_t soft_faults = 0;  // hits on pages that were near but unmapped
  double hit_rate() const { return static_cast<double>(hits) / static_cast<double>(hits + misses); }
};

// What the policy learns of an access to a near page.
enum class Known {
  kFaults,    // nothing: no code line has a hint
  kUses,      // every line has a hint: the hot bit is set
  kPriority,  // and hints to pages from once_from on say priority 3
};

// Four threads take turns at random, each with its own shard. Pages leave in batches as they do in the pager.
Outcome simulate_policy(const Trace& trace, uint64_t near_pages, PolicyKind kind, Known known);
Outcome simulate_exact_lru(const Trace& trace, uint64_t near_pages);
Outcome simulate_optimum(const Trace& trace, uint64_t near_pages);

// A policy that Farside does not have (docs/decisions/0006): first in, first out, but a page that would leave is only
// unmapped and stays near until `probation` of all near pages came after it. A touch meanwhile is a soft fault, and the
// page counts as new.
Outcome simulate_probation(const Trace& trace, uint64_t near_pages, double probation);

}  // namespace farside::pager
