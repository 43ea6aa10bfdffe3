// The line of JSON that a process leaves for the launcher when it ends, or shows to `farside ctl`: what it was, what
// its faults and evictions were, and where their time went.
#pragma once
#include <cstdint>

#include "abi/options.h"
#include "pager/pager.h"
#include "preload/guard/signals.h"

namespace farside::preload {

struct ReportContext {
  pager::Pager& pager;
  pager::Stats stats;
  FaultMode mode;
  const char* mode_reason;
  bool forked;  // the process is a fork's child
  uint64_t forks;
  double seconds;
  SignalCost signal;  // zeros: not known
};

// Returns the bytes written. Touches no far memory. Ordinary code.
size_t format_report(const ReportContext& context, char* line, size_t room);
void append_report(const char* path, const ReportContext& context);

}  // namespace farside::preload
