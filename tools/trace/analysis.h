// From recorded call stacks to places: lines of the program's source, each with its kinds of faults, its access
// pattern, its data, and a hint that suits it. All contents of the outputs (table, flame graph, folded stacks, JSON)
// are computed here.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "tools/trace/pattern.h"
#include "tools/trace/symbols.h"

namespace farside::trace {

// An allocation site, and the faults on its data.
struct Data {
  std::string site;  // as "build (list.c:20)"
  uint64_t faults = 0;
  uint64_t bytes = 0;
};

struct Place {
  Frame where;
  // The library function in which most of its faults occur, as "memcpy of libc.so.6"; "" if they are in the line
  // itself.
  std::string inner;
  KindCounts faults = {};
  Steps steps;
  Classified pattern;
  std::vector<Data> data;  // most faults first
  unsigned threads = 0;
  std::string hint;   // the hint to insert
  int hinted_at = 0;  // a line shortly before it that has a hint; 0: none
  uint64_t total() const { return total_of(faults); }
};

// A call stack as text, outermost frame first, as "main (list.c:50)". The first entry is the program's name.
struct FoldedStack {
  std::vector<std::string> frames;
  KindCounts faults = {};
};

struct HintUse {
  std::string where;   // as "walk (list.c:40)"
  uint64_t calls = 0;  // calls that passed the inline guard
  uint64_t fetched = 0;
};

struct Analysis {
  std::vector<Place> places;        // most faults first
  std::vector<FoldedStack> stacks;  // most faults first
  std::vector<HintUse> hints;       // every hint in the program, executed or not
  uint64_t faults = 0, dropped = 0;
  unsigned processes = 0, threads = 0;
  bool lines_known = false;  // some place in the program has a line

  // The number of places, from the first on, that together have `percent` (0 to 100) of all faults.
  static constexpr double kUsualPercent = 95;  // as in Eden's tables
  size_t places_for(double percent) const;
  // Those of the table: for so many percent, or, if it is kTenPlaces, ten at most.
  static constexpr double kTenPlaces = 0;
  size_t places_shown(double percent) const;
};

Result<Analysis> analyze(const Recording& recording);

// ---- Parts of the analysis, for tests ----

// The index of the frame that is the place: the innermost one with a line of the program's own source; otherwise the
// innermost one of the program or of a library that is not the system's; otherwise the innermost of all.
size_t find_place(const std::vector<Frame>& stack, const std::string& program);

// Keeps the most frequent stacks, up to so many bytes of text, and adds the others up, as one stack.
inline constexpr const char* kRareStacks = "(other stacks)";
void merge_rare_stacks(std::vector<FoldedStack>* stacks, size_t max_text);

// A brief name and the file without folders, as "push (vec.h:12)"; of Python's packages, with their folders.
std::string short_text(const Frame& frame);
// A demangled name without its arguments and template arguments, as "std::vector<..>::push_back".
std::string brief_name(const std::string& name);

}  // namespace farside::trace
