// The programs of `farside bench file`, with a share of what they hold in RAM: over far memory in a file, and on kernel
// swap there.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/file.h"

namespace farside::bench {

// [{"name", "unit", "native": value, ..., "far file", "kernel swap"}], of as many repetitions as settings has. What
// could not be measured is in *skipped with the reason. A value is seconds, or thousand operations a second.
Result<nlohmann::json> measure_programs(const FileSettings& settings, const SignalHold& hold,
                                        std::map<std::string, std::string>* skipped);

}  // namespace farside::bench
