// What `farside bench hints` does: the cost of a hint's inline guard (include/farside/farside.h) on pages that are
// near, where it is all that a hint does. Time by the time stamp counter; instructions by stepping through a child.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace farside::bench {

struct HintsSettings {
  unsigned repetitions = 11;
};

// {"machine", "cases": [{"name", "cycles": summary, "ns", "instructions" (null where ptrace is forbidden)}]}
nlohmann::json measure_hints(const HintsSettings& settings);
std::string hints_text(const nlohmann::json& document);

}  // namespace farside::bench
