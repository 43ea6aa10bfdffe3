// The table of places and the folded stacks.
#include <fmt/format.h>

#include "base/size.h"
#include "tools/trace/outputs.h"

namespace farside::trace {
namespace {

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string kind_columns(const Place& place) {
  std::string columns;
  for (uint64_t count : place.faults) {
    columns += count == 0 ? fmt::format("{:>6}", "-") : fmt::format("{:>5.0f}%", percent(count, place.total()));
  }
  return columns;
}

std::string data_text(const Place& place) {
  if (place.data.empty()) return "";
  const Data& first = place.data.front();
  std::string text = fmt::format("; data of {}, {}", first.site, format_size(first.bytes));
  double part = percent(first.faults, place.total());
  return part < 99 ? text + fmt::format(" ({:.0f} % of them)", part) : text;
}

std::string rows_of(const Place& place, double share, double sum, bool hints_exist) {
  std::string inner = place.inner.empty() ? "" : ", in " + place.inner;
  std::string text =
      fmt::format("{:5.1f}% {:5.1f}%{}  {}{}\n", share, sum, kind_columns(place), short_text(place.where), inner);
  constexpr const char* kIndent = "                                       ";
  text += fmt::format("{}{}{}\n", kIndent, to_text(place.pattern), data_text(place));
  if (place.hinted_at) return text + fmt::format("{}hinted in line {}, but still faults\n", kIndent, place.hinted_at);
  return text + fmt::format("{}{}{}\n", kIndent, hints_exist ? "no hint yet: " : "", place.hint);
}

std::string hint_lines(const Analysis& analysis) {
  std::string text;
  for (const HintUse& hint : analysis.hints) {
    if (hint.fetched > 0) continue;
    text += hint.calls
                ? fmt::format("farside: the hint at {} never caused a fetch: in all {} calls the pages were near\n",
                              hint.where, hint.calls)
                : fmt::format("farside: the hint at {} never caused a fetch, or was never executed\n", hint.where);
  }
  return text;
}

}  // namespace

std::string to_table(const Analysis& analysis, double coverage, const std::string& directory) {
  if (analysis.faults == 0) return "farside: no fault was recorded: the program's memory stayed near; lower --local\n";
  uint64_t all = analysis.faults + analysis.dropped, sum = 0;
  std::string text = fmt::format("farside: {} faults in {} threads of {} processes, at {} places\n", all,
                                 analysis.threads, analysis.processes, analysis.places.size());
  text += fmt::format("{:>6} {:>6}{:>6}{:>6}{:>6}{:>6}  place\n", "share", "sum", "read", "write", "prot.", "alloc");
  size_t shown = analysis.places_shown(coverage);
  for (size_t i = 0; i < shown; i++) {
    const Place& place = analysis.places[i];
    sum += place.total();
    text += rows_of(place, percent(place.total(), all), percent(sum, all), !analysis.hints.empty());
  }
  if (analysis.dropped)
    text += fmt::format("{:5.1f}%  of unknown place: the recorder had no room for more call stacks; use less data\n",
                        percent(analysis.dropped, all));
  text += hint_lines(analysis);
  if (!analysis.lines_known) {
    text += "farside: the program has no debug information: build it with -g to see lines instead of offsets\n";
  }
  text += fmt::format(
      "farside: {} of {} places have {:.1f} % of the faults; flame.svg, folded.txt and trace.json are in {}\n", shown,
      analysis.places.size(), percent(sum, all), directory);
  return text;
}

std::string to_folded(const Analysis& analysis) {
  std::string text;
  for (const FoldedStack& stack : analysis.stacks) {
    std::string line;
    for (const std::string& frame : stack.frames) line += frame + ";";
    for (unsigned kind = 0; kind < kTraceKinds; kind++) {
      if (stack.faults[kind] > 0) text += fmt::format("{}[{}] {}\n", line, kKindNames[kind], stack.faults[kind]);
    }
  }
  return text;
}

}  // namespace farside::trace
