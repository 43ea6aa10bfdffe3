#include "tools/plan/points.h"

#include <algorithm>
#include <cmath>

namespace farside::plan {

using nlohmann::json;

double value_at(const json& points, const char* axis, double x, const char* member) {
  auto after = std::ranges::find_if(points, [&](const json& p) { return p[axis] >= x; });
  if (after == points.end()) return points.back()[member];
  if (after == points.begin()) return (*after)[member];
  const json& before = *std::prev(after);
  double from = before[axis], part = (x - from) / ((*after)[axis].get<double>() - from);
  return std::lerp(before[member].get<double>(), (*after)[member].get<double>(), part);
}

std::optional<double> smallest_with(const json& points, const char* axis, const char* member, double limit) {
  std::optional<double> smallest;
  for (size_t i = points.size(); i-- > 0;) {
    double here = points[i][member], x = points[i][axis];
    if (here > limit) {
      if (!smallest) return smallest;
      double above = points[i + 1][member], next = points[i + 1][axis];
      return x + (next - x) * (here - limit) / std::max(1e-12, here - above);
    }
    smallest = x;
  }
  return smallest;
}

}  // namespace farside::plan
