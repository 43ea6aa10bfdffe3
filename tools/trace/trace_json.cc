#include "tools/trace/outputs.h"

namespace farside::trace {
namespace {
using nlohmann::json;

json kinds(const KindCounts& counts) {
  json result;
  for (unsigned kind = 0; kind < kTraceKinds; kind++) result[kKindNames[kind]] = counts[kind];
  return result;
}

json steps(const Place& place) {
  const Steps& s = place.steps;
  json strides = json::array();
  for (auto [stride, count] : s.strides) strides.push_back({{"bytes", stride}, {"count", count}});
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
  for (const Data& d : place.data) data.push_back({{"site", d.site}, {"faults", d.faults}, {"bytes", d.bytes}});
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
                 {"coverage_percent", coverage},
                 {"coverage_places", analysis.places_for(coverage)}};
  result["places"] = json::array();
  for (const Place& place : analysis.places) result["places"].push_back(place_to_json(place));
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
