#include "tools/trace/pattern.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bits.h"

namespace farside::trace {
namespace {

constexpr uint64_t kFewSteps = 8;
constexpr double kMostly = 0.5;
constexpr uint64_t kOneWay = 4;      // factor by which the steps in one direction must exceed those in the other
constexpr double kChaseShare = 0.3;  // of the steps; pages that are near by chance break the chain
constexpr uint64_t kOnce = 2;        // fetches per page of data that counts as used once, at most

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// True if keeping its pages would not help: the data does not fit, and is hardly fetched twice.
bool is_used_once(const KindCounts& faults, const DataSize& data) {
  uint64_t fetched = (faults[0] + faults[1]) * kPageSize;
  return data.near_limit > 0 && data.bytes > data.near_limit && fetched <= kOnce * data.bytes;
}

}  // namespace

// An instruction that walks through data walks in one direction. If small steps go both ways alike they are chance: the
// data is small and mostly near.
void Steps::add(const TracePattern& pattern) {
  uint64_t walked = pattern.sequential + pattern.strided, backwards = 0;
  for (const auto& s : pattern.strides) backwards += s.stride < 0 ? s.count : 0;
  uint64_t forwards = walked - std::min(walked, backwards);
  same += pattern.same;
  chase_checked += pattern.chase_checked;
  chase_found += pattern.chase_found;
  if (kOneWay * std::min(forwards, backwards) > std::max(forwards, backwards)) {
    random += walked + pattern.random;
    return;
  }
  sequential += pattern.sequential;
  strided += pattern.strided;
  random += pattern.random;
  for (const auto& s : pattern.strides) {
    if (s.count > 0) strides[s.stride] += s.count;
  }
}

Classified classify(const Steps& steps) {
  uint64_t moved = steps.sequential + steps.strided + steps.random;
  if (moved + steps.same < kFewSteps) return {};
  if (share(steps.same, moved + steps.same) > kMostly) return {Access::kSame, 0};
  auto common = std::max_element(steps.strides.begin(), steps.strides.end(),
                                 [](auto& a, auto& b) { return a.second < b.second; });
  int64_t stride = common == steps.strides.end() ? 0 : common->first;
  bool streams = share(steps.sequential + steps.strided, moved) >= kMostly;
  if (streams && steps.sequential >= steps.strided) return {Access::kSequential, 0};
  if (streams && stride == -static_cast<int64_t>(kPageSize)) return {Access::kBackwards, 0};
  if (streams) return {Access::kStrided, stride};
  if (share(steps.chase_found, steps.chase_checked) >= kChaseShare) return {Access::kChase, 0};
  return {Access::kRandom, 0};
}

std::string name_of(Access access) {
  switch (access) {
    case Access::kFew:
      return "few";
    case Access::kSequential:
      return "sequential";
    case Access::kBackwards:
      return "backwards";
    case Access::kStrided:
      return "strided";
    case Access::kChase:
      return "pointer chase";
    case Access::kRandom:
      return "random";
    case Access::kSame:
      return "same page";
  }
  return "";
}

std::string to_text(const Classified& pattern) {
  switch (pattern.access) {
    case Access::kFew:
      return "too few faults for a pattern";
    case Access::kBackwards:
      return "sequential, backwards";
    case Access::kStrided:
      return fmt::format("strided by {} bytes", pattern.stride);
    case Access::kSame:
      return "the same page repeatedly";
    default:
      return name_of(pattern.access);
  }
}

std::string hint_line(const Classified& pattern, const KindCounts& faults, const DataSize& data) {
  bool write = 2 * faults[0] < total_of(faults);
  const char* kind = write ? "FARSIDE_WRITE" : "FARSIDE_READ";
  std::string plain = fmt::format("farside_hint_{}(ADDRESS, BYTES);", write ? "write" : "read");
  auto with = [&](const char* more) { return fmt::format("farside_hint(ADDRESS, BYTES, {} | {});", kind, more); };
  switch (pattern.access) {
    case Access::kSequential:
      return with("FARSIDE_SEQ | FARSIDE_AHEAD(32)");
    case Access::kBackwards:
      return with("FARSIDE_SEQ | FARSIDE_BEHIND(32)");
    case Access::kStrided:
      return fmt::format("{}  // moves by {} bytes: ADDRESS{:+} is next", plain, pattern.stride, pattern.stride);
    case Access::kChase:
      return plain + "  // as soon as the pointer is known";
    case Access::kSame:
      return plain + "  // the page is evicted while in use: more near memory would help";
    case Access::kRandom:
      return is_used_once(faults, data) ? with("FARSIDE_PRIORITY(2)") : plain;
    case Access::kFew:
      return plain;
  }
  return plain;
}

std::string python_hint_line(const Classified& pattern, int line) {
  if (line == 0) return "os._exit(STATUS)  # after the last output: objects are not freed one by one";
  bool stream = pattern.access == Access::kSequential || pattern.access == Access::kBackwards;
  if (stream) return "farside.hint(ARRAY, \"sequential\")  # of an array; objects need more near memory";
  return "farside.prefetch(ARRAY, PART)  # of an array; objects need more near memory";
}

}  // namespace farside::trace
