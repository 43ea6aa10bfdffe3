// The suite of `farside bench scaling`, and the changes of the pager's design that it simulates.
#pragma once
#include <vector>

#include "bench/runner/benchmark.h"
#include "bench/scaling/model.h"

namespace farside::bench::scaling {

// A change of the design, and its name.
struct Change {
  const char* name;
  void (*apply)(Design& design);
};
const std::vector<Change>& changes();

std::vector<Table> tables();
std::vector<Curves> charts();

}  // namespace farside::bench::scaling

namespace farside::bench {

Suite scaling_suite();

}  // namespace farside::bench
