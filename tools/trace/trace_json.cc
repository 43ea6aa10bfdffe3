#include <algorithm>
#include <span>

#include "tools/trace/outputs.h"

namespace farside::trace {
namespace {
using nlohmann::json;

constexpr size_t kMaxPlaces = 500, kMaxOfPlace = 10;  // elements of a list

template <typename T>
std::span<const T> first_of(const std::vector<T>& list, size_t most) {
  return std::span(list).first(std::min(most, list.size()));
}

json kinds(const KindCounts& counts) {
  json result;
  for (unsigned kind = 0; kind < kTraceKinds; kind++) result[kKindNames[kind]] = counts[kind];
  return result;
}

json steps(const Place& place) {
  const Steps& s = place.steps;
  json strides = json::array();
  std::vector<std::pair<int64_t, uint64_t>> common(s.strides.begin(), s.strides.end());
  std::stable_sort(common.begin(), common.end(), [](auto& a, auto& b) { return a.second > b.second; });
  for (auto [stride, count] : first_of(common, kMaxOfPlace)) strides.push_back({{"bytes", stride}, {"count", count}});
  return {{"name", name_of(place.pattern.access)},
          {"stride", place.pattern.stride},
          {"same_page", s.same},
          {"sequential", s.sequential},
          {"strided", s.strided},
          {"random", s.random},
          {"chase_checked", s.chase_checked},
          {"chase_found", s.chase_found},
          {"strides", strides}};
}

json place_to_json(const Place& place) {
  json data = json::array();
  for (const Data& d : first_of(place.data, kMaxOfPlace))
    data.push_back({{"site", d.site}, {"faults", d.faults}, {"bytes", d.bytes}});
  return {{"function", place.where.function},
          {"file", place.where.file},
          {"line", place.where.line},
          {"module", place.where.module},
          {"inner", place.inner},
          {"faults", place.total()},
          {"kinds", kinds(place.faults)},
          {"threads", place.threads},
          {"pattern", steps(place)},
          {"data", data},
          {"hint", place.hint},
          {"hinted_at", place.hinted_at ? json(place.hinted_at) : json()}};
}

}  // namespace

json to_json(const Analysis& analysis, const std::vector<std::string>& program, double coverage) {
  json result = {{"program", program},
                 {"faults", analysis.faults},
                 {"dropped", analysis.dropped},
                 {"processes", analysis.processes},
                 {"threads", analysis.threads},
                 {"places_shown", analysis.places_shown(coverage)},
                 {"coverage_places", analysis.places_for(Analysis::kUsualPercent)}};
  result["places"] = json::array();
  uint64_t others = analysis.faults;
  for (const Place& place : first_of(analysis.places, kMaxPlaces)) {
    result["places"].push_back(place_to_json(place));
    others -= place.total();
  }
  result["faults_at_other_places"] = others;
  result["hints"] = json::array();
  for (const HintUse& hint : analysis.hints) {
    result["hints"].push_back({{"where", hint.where}, {"calls", hint.calls}, {"fetched", hint.fetched}});
  }
  result["stacks"] = json::array();
  for (const FoldedStack& stack : analysis.stacks) {
    result["stacks"].push_back({{"frames", stack.frames}, {"faults", kinds(stack.faults)}});
  }
  return result;
}

}  // namespace farside::trace
