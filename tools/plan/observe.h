// Observes all memory accesses of one run of a program, with Valgrind's tool lackey. The reasons and the cost are in
// docs/decisions/0012-observing-accesses.md.
#pragma once
#include <string>
#include <vector>

#include "abi/page_trace.h"
#include "launch/child.h"
#include "tools/plan/observation.h"

namespace farside::plan {

struct Observed {
  Observation observation;
  double seconds = 0;  // duration of the observed run
  bool cut_off = false;
  uint64_t instructions = 0;
};

// The path of valgrind. ENOENT, with advice, if it is not installed.
Result<std::string> find_valgrind();

// Runs words[0], a path, with all words as its arguments, for at most `max_seconds` (0: no limit). Shows progress
// unless quiet. trace: records the accessed pages, too, if it is not null. It is an error if the program does not exit
// with status 0. The caller has no threads.
Status observe(const std::vector<std::string>& words, const SignalHold& hold, double max_seconds, bool quiet,
               Observed* observed, PageTraceWriter* trace = nullptr);

// Observes a whole run as above and writes the pages that it accesses to the file.
Result<PageTraceHeader> record_pages(const std::vector<std::string>& words, const std::string& file, bool quiet);

}  // namespace farside::plan
