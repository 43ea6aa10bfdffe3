// Before a signal ends the process with a core dump, its far pages are fetched, so that the core has them
// (`farside run --tune core=all`), and those that are left are listed in the core, for `farside core`. Signals of that
// kind are received by Farside also where the program has no handler for them (signals.h).
#pragma once
#include "pager/pager.h"

namespace farside::preload {

// Called once, before the guard is installed. fetch: all of far memory. Without it, nothing is done where the limit of
// cores (ulimit -c) is zero now.
void prepare_core_dumps(pager::Pager* pager, bool fetch);

// Whether the default action of this signal is replaced.
bool is_core_dump_prepared(int signal);

// To be called before the default action of a signal. Async-signal-safe; no handler of the program may run meanwhile.
void prepare_core_dump(int signal);

}  // namespace farside::preload
