// What the counters of a process say about the time that it lost to far memory, and what would lose less of it. Each
// advice names the effect that it can have at most, from the time that the counters attribute to what it changes.
// The counters are those of a whole run, or the difference of two reports of a running process.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "abi/options.h"

namespace farside::cli {

struct Loss {
  double seconds = 0;  // in faults, of the thread that had most of them
  double run_seconds = 0;
  double share() const { return run_seconds > 0 ? seconds / run_seconds : 0; }
};
Loss loss_of(const nlohmann::json& report);
// The loss that --slowdown bounds: without first touches, which cost natively too.
Loss refault_loss_of(const nlohmann::json& report);

// Whether near memory sized itself (--local auto).
bool is_automatic(const nlohmann::json& report);

// The part of managed memory that is not near, in bytes, Farside's tables subtracted: of the peaks, or with an
// automatic size of the means over time.
uint64_t saved_bytes(const nlohmann::json& report);
// The heap that this is a part of: its peak, or its mean.
uint64_t heap_bytes(const nlohmann::json& report);

// The part of a run's time from which on it is worth to do something.
inline constexpr double kWorthwhile = 0.05;

struct Advice {
  std::string text;
  double seconds;  // that it saves at most; 0: it saves something else
};

// In the order of what they save. Those that save time save a worthwhile part of it.
std::vector<Advice> advise(const nlohmann::json& report, HugePages huge);

}  // namespace farside::cli
