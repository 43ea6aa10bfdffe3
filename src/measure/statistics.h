// Statistics of measured values, and goals for them. Pure functions.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace farside {

// The value at the given share of the sorted values (0.5: median); 0 if there are none. Reorders `values`. For double
// and uint32_t.
template <typename T>
T quantile(std::vector<T>& values, double share);

double median(std::vector<double> values);

// {"median", "min", "max", "runs"}; null without values.
nlohmann::json summary(const std::vector<double>& runs);

// A limit for a measured value.
struct Goal {
  std::string name;
  double measured;
  double limit;
  bool at_least;  // measured >= limit, else measured <= limit
  std::string unit;
  bool met() const { return at_least ? measured >= limit : measured <= limit; }
  std::string text() const;  // "reached     random read, shm against zram swap: 2.4x (goal: at least 2.0x)"
  nlohmann::json to_json() const;
};

}  // namespace farside
