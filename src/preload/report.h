// The line of JSON that a process writes for the launcher when it ends, and for `farside ctl`: its mode and settings,
// its faults and evictions, and how their time is composed.
#pragma once
#include <cstdint>

#include "abi/options.h"
#include "pager/pager.h"
#include "preload/guard/signals/faults.h"

namespace farside::preload {

struct ReportContext {
  pager::Pager& pager;
  pager::Stats stats;
  FaultMode mode;
  const char* mode_reason;
  bool forked;        // the process is the child of a fork
  uint64_t forks;     // that the process has made
  double seconds;     // since it began, or was forked
  SignalCost signal;  // zeros: not measured
};

// Writes the line, and returns its bytes. Accesses no far memory and allocates nothing. Not async-signal-safe.
size_t format_report(const ReportContext& context, char* line, size_t room);
void append_report(const char* path, const ReportContext& context);

// In the child of a fork.
void forget_far_peak();

// Lines of the same file about processes that may not write a report. event: "begin" when far memory works in this
// process, "exec" when it becomes another program. Async-signal-safe.
void append_event(const char* path, const char* event);
// Why this process ends without its far memory. Async-signal-safe.
void append_failure(const char* path, const char* reason);
// A program that runs without Farside, and why.
void append_native_program(const char* path, const char* program, const char* reason);

}  // namespace farside::preload
