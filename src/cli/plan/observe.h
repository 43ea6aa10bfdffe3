// One run of a program whose accesses are seen, all of them: under Valgrind's tool lackey. Why so, and what it costs:
// docs/decisions/0012.
#pragma once
#include <string>
#include <vector>

#include "cli/plan/observation.h"
#include "launch/child.h"

namespace farside::cli::plan {

struct Observed {
  Observation observation;
  double seconds = 0;  // that the observed run took
  bool cut_off = false;
  uint64_t instructions = 0;
};

// The path of valgrind; what to do, where it is missing.
Result<std::string> find_valgrind();

// Runs words[0], a path, with all words as its arguments, for so many seconds at most (0: any time). Shows how far it
// is unless quiet. A program that ends with another status than 0 is an error.
Status observe(const std::vector<std::string>& words, const SignalHold& hold, double most_seconds, bool quiet,
               Observed* observed);

}  // namespace farside::cli::plan
