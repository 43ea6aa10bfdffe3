// `farside bench hints`: the cost of the inline guard of a hint (include/farside/farside.h) on near pages, where the
// guard is all that a hint executes. Time is taken from the time stamp counter; instructions are counted by
// single-stepping a child process.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace farside::bench {

struct HintsSettings {
  unsigned repetitions = 11;
};

// {"machine", "cases": [{"name", "cycles": summary, "ns", "instructions" (null if ptrace is not permitted)}]}
nlohmann::json measure_hints(const HintsSettings& settings);
std::string hints_text(const nlohmann::json& document);

}  // namespace farside::bench
