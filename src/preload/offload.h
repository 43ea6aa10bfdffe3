// Calls of functions on memory servers (include/farside/offload.h) for programs that run under Farside.
#pragma once
#include "pager/pager.h"

namespace farside::preload {

// Called once, before main().
void enable_offload(pager::Pager* pager);
// In a forked child: servers execute no functions of it, since its region is a snapshot.
void reset_offload_in_child();

}  // namespace farside::preload
