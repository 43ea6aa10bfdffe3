#include "measure/statistics.h"

#include <fmt/format.h>

#include <algorithm>

namespace farside {

template <typename T>
T quantile(std::vector<T>& values, double share) {
  if (values.empty()) return 0;
  auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}
template double quantile(std::vector<double>&, double);
template uint32_t quantile(std::vector<uint32_t>&, double);

double median(std::vector<double> values) { return quantile(values, 0.5); }

nlohmann::json summary(const std::vector<double>& runs) {
  auto [smallest, largest] = std::minmax_element(runs.begin(), runs.end());
  if (runs.empty()) return nullptr;
  return {{"median", median(runs)}, {"min", *smallest}, {"max", *largest}, {"runs", runs}};
}

std::string Goal::text() const {
  return fmt::format("{:11} {}: {:.2f}{} (goal: at {} {:g}{})", met() ? "reached" : "not reached", name, measured, unit,
                     at_least ? "least" : "most", limit, unit);
}

nlohmann::json Goal::to_json() const {
  return {{"name", name},         {"measured", measured}, {"limit", limit},
          {"at_least", at_least}, {"unit", unit},         {"met", met()}};
}

}  // namespace farside
