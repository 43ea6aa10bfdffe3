// Sets of signals, and the mask of interrupted code. Async-signal-safe.
#pragma once
#include <signal.h>
#include <ucontext.h>

#include <cstring>

#include "base/os.h"

namespace farside::preload {

inline constexpr os::SignalSet kOurSignals = os::signal_bit(SIGBUS) | os::signal_bit(SIGSYS);
inline constexpr os::SignalSet kAllButOurs = ~kOurSignals;

// The set without SIGBUS and SIGSYS.
inline os::SignalSet without_ours(os::SignalSet set) { return set & ~kOurSignals; }

// The mask that the kernel restores when the handler with this context returns.
inline os::SignalSet mask_of(const void* context) {
  os::SignalSet mask;
  memcpy(&mask, &static_cast<const ucontext_t*>(context)->uc_sigmask, sizeof mask);
  return mask;
}
inline void set_mask(ucontext_t* context, os::SignalSet mask) { memcpy(&context->uc_sigmask, &mask, sizeof mask); }

}  // namespace farside::preload
