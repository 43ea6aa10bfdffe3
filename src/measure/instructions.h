// Counts the instructions of a piece of code by single-stepping a child process. Works without hardware counters, which
// virtual machines often lack.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

namespace farside {

// Instructions of work() and of a few calls around it: measure a difference to cancel those. Empty if tracing is not
// permitted. Slow: some microseconds per instruction. The caller has no threads: work() runs in a forked child.
std::optional<uint64_t> count_instructions(const std::function<void()>& work);

}  // namespace farside
