// What the samples of a run (abi/sample_file.h) say of a process: what it would fetch with less near memory.
//
// A round makes the pages of a slice of the sample far. How many of them are used again within a time T is the working
// set W(T) of that moment, and its slope dW/dT is the rate at which a near memory of W(T) pages that keeps what was
// used last would miss (P. J. Denning, The working set model for program behavior, 1968; AET, ATC'16). So one round has
// the rates of all sizes; the sum over the rounds is what would be fetched. The pager's two queues keep a part of what
// does not fit, where the order of last use keeps none of it: the convex hull of the misses describes them (Talus,
// HPCA'15).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "abi/sample_file.h"
#include "base/status.h"
#include "tools/plan/reuse/shards.h"

namespace farside::plan {

struct Samples {
  struct Event {
    double us;  // of useful time since the start: without what faults took
    uint32_t page;
    SampleKind kind;
    bool in_stream = false;  // a fetch that follows that of a neighbour
  };
  struct Round {
    double us;       // as above
    size_t first;    // its first event
    uint32_t slice;  // of the sample
  };
  uint32_t pid = 0;
  uint32_t threshold = kSampleAll;  // of all rounds: pages that left the sample are removed
  bool is_cut_off = false;          // the file was full
  double seconds = 0;               // from the first round to the end
  double useful_us = 0;             // of these
  double processors = 1;            // that the threads kept busy
  double fault_us = 0;              // that a fetch took
  uint64_t heap_pages = 0;          // at most populated
  std::vector<Round> rounds;
  std::vector<Event> events;

  double rate() const { return (static_cast<double>(threshold) + 1) / 4294967296.0; }
};

// Of one process. EINVAL: not such a file. Without rounds: the process ended before it was sampled.
Result<Samples> read_samples(const std::string& path);

// What the process would fetch with `pages` near.
struct Fetches {
  Estimate all;
  double in_streams = 0;  // of these
  double dirty = 0;       // evicted pages that had been written to since they were fetched
};
// For each of `sizes`, in pages, which rise.
std::vector<Fetches> fetches_with(const Samples& samples, const std::vector<double>& sizes);

}  // namespace farside::plan
