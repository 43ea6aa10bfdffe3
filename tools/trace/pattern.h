// The access pattern of a place from its recorded steps, and the hint that suits it. Pure functions.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "abi/trace_file.h"

namespace farside::trace {

enum class Access { kFew, kSequential, kBackwards, kStrided, kChase, kRandom, kSame };

// The steps of a place, summed over call stacks and threads.
struct Steps {
  uint64_t same = 0, sequential = 0, strided = 0, random = 0;
  uint64_t chase_checked = 0, chase_found = 0;
  std::map<int64_t, uint64_t> strides;
  void add(const TracePattern& pattern);
};

struct Classified {
  Access access = Access::kFew;
  int64_t stride = 0;  // bytes, if strided
};
Classified classify(const Steps& steps);

// As text: "sequential", "strided by 20480 bytes", "pointer chase", ...
std::string to_text(const Classified& pattern);
// The name alone, for JSON.
std::string name_of(Access access);

using KindCounts = std::array<uint64_t, kTraceKinds>;
inline constexpr const char* kKindNames[kTraceKinds] = {"read", "write", "protection", "allocation"};
inline uint64_t total_of(const KindCounts& counts) { return counts[0] + counts[1] + counts[2] + counts[3]; }

// The size of the data on which a place faults.
struct DataSize {
  uint64_t bytes = 0;       // allocated
  uint64_t near_limit = 0;  // budget of the process
};

// The hint to insert before the place, with the options that suit the pattern. ADDRESS and BYTES are left for the user
// to fill in. Further advice follows after "  // ".
std::string hint_line(const Classified& pattern, const KindCounts& faults, const DataSize& data);
// The same for a line of Python, whose arrays have hints, but not its objects; line 0: its end, which frees them.
std::string python_hint_line(const Classified& pattern, int line);

}  // namespace farside::trace
