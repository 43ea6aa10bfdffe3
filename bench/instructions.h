// How many instructions a piece of code takes: counted one by one in a child process, since there may be no hardware
// counters.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

namespace farside::bench {

// Instructions of work(), and a few around it. Nothing where tracing is not allowed. Slow: some microseconds each.
std::optional<uint64_t> count_instructions(const std::function<void()>& work);

}  // namespace farside::bench
