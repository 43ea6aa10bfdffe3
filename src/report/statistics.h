// Statistics over measured values, and goals that they are compared with.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace farside {

// The value below which the given share of the values lies; 0 without values. Reorders them.
template <typename T>
T quantile(std::vector<T>& values, double share);

double median(std::vector<double> values);

// Median and extremes, as {"median", "min", "max", "runs"}.
nlohmann::json summary(const std::vector<double>& runs);

// Something that the benchmark should show, and whether it did.
struct Goal {
  std::string name;
  double measured;
  double limit;
  bool at_least;  // measured >= limit, else measured <= limit
  std::string unit;
  bool met() const { return at_least ? measured >= limit : measured <= limit; }
  std::string text() const;  // "met     random read, shm against zram swap: 2.4x (goal: at least 2.0x)"
  nlohmann::json to_json() const;
};

}  // namespace farside
