// From recorded call stacks to places: lines of the program's own source, each with how it faults, on what data, and
// what would help. All that the outputs (table, flame graph, folded stacks, JSON) show is computed here.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "cli/trace/pattern.h"
#include "cli/trace/symbols.h"

namespace farside::cli::trace {

// Where the data of some faults was allocated.
struct Data {
  std::string site;  // "build (list.c:20)"
  uint64_t faults = 0;
  uint64_t bytes = 0;
};

struct Place {
  Frame where;
  std::string
      inner;  // the library function in which it faults most, as "memcpy of libc.so.6"; "" if in the line itself
  KindCounts faults = {};
  Steps steps;
  Classified pattern;
  std::vector<Data> data;  // largest part of the faults first
  unsigned threads = 0;
  std::string hint;   // the line to insert
  int hinted_at = 0;  // a line shortly before that hints already; 0: none
  uint64_t total() const { return total_of(faults); }
};

// A call stack as text, outermost first: "main (list.c:50)". The first is the program's name.
struct FoldedStack {
  std::vector<std::string> frames;
  KindCounts faults = {};
};

struct HintUse {
  std::string where;    // "walk (list.c:40)"
  uint64_t looked = 0;  // got past the inline guard
  uint64_t fetched = 0;
};

struct Analysis {
  std::vector<Place> places;  // most faults first
  std::vector<FoldedStack> stacks;
  std::vector<HintUse> hints;  // every hint in the program, used or not
  uint64_t faults = 0, dropped = 0;
  unsigned processes = 0, threads = 0;
  bool lines_known = false;  // of some place in the program

  // How many places, from the first on, have this share of all faults (0 to 100).
  size_t places_for(double percent) const;
};

Result<Analysis> analyze(const Recording& recording);

// ---- Its parts, for tests ----

// Which frame of a stack is the place: the innermost with a line of the program's own source; else the innermost of the
// program or of a library that is not the system's; else the innermost of all.
size_t find_place(const std::vector<Frame>& stack, const std::string& program);

// "push (vec.h:12)": a brief name, and the file without folders.
std::string short_text(const Frame& frame);
// A demangled name without its arguments and template arguments: "std::vector<..>::push_back".
std::string brief_name(const std::string& name);

}  // namespace farside::cli::trace
