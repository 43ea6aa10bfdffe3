#include "bench/objects/suite.h"

#include <fmt/format.h>

#include <algorithm>

namespace farside::bench::objects_bench {

using nlohmann::json;

json make_row(json key, json figures) { return {{"key", std::move(key)}, {"figures", std::move(figures)}}; }

std::vector<LineChart> no_charts(const json&) { return {}; }

const json* find_row(const json& document, const json& key) {
  for (const json& row : document["rows"]) {
    bool same = std::all_of(key.items().begin(), key.items().end(),
                            [&](const auto& item) { return row.value(item.key(), json()) == item.value(); });
    if (same) return &row;
  }
  return nullptr;
}

double figure(const json& document, const json& key, const char* name) {
  const json* row = find_row(document, key);
  return row ? (*row)[name]["median"].get<double>() : 0;
}

std::string figure_text(const json& document, const json& key, const char* name, double unit, int digits) {
  if (!find_row(document, key)) return "-";
  return fmt::format("{:.{}f}", figure(document, key, name) / unit, digits);
}

void add_ratio_goal(std::vector<Goal>* goals, const std::string& name, double figure, double beside, double limit,
                    bool at_least) {
  if (figure > 0 && beside > 0) goals->push_back({name, figure / beside, limit, at_least, "x"});
}

}  // namespace farside::bench::objects_bench
