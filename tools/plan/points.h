// Points of a computed plan: JSON objects, whose member `axis` (a size or share of near memory) rises. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

namespace farside::plan {

// The value of `member` at `x`, interpolated; beyond the ends that of the first or last point.
double value_at(const nlohmann::json& points, const char* axis, double x, const char* member);

// The smallest x from which on `member` is at most `limit`, interpolated. Empty: it is above it at the last point.
std::optional<double> smallest_with(const nlohmann::json& points, const char* axis, const char* member, double limit);

}  // namespace farside::plan
