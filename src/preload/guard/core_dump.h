// `farside run --core=all`: before a signal ends the process with a core dump, its far pages are fetched, so that the
// core has them. Signals of that kind are received by Farside also where the program has no handler for them
// (signals.h).
#pragma once
#include "pager/pager.h"

namespace farside::preload {

// Called once, before the guard is installed.
void fetch_before_core_dumps(pager::Pager* pager);

// Whether the default action of this signal is replaced.
bool is_core_dump_prepared(int signal);

// To be called before the default action of a signal. Async-signal-safe; no handler of the program may run meanwhile.
void prepare_core_dump(int signal);

}  // namespace farside::preload
