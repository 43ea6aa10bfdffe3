// The program's own interface to Farside, include/farside/farside.h.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// From here on the program's hints find far memory.
void show_far_memory_to_hints(pager::Pager* pager);

}  // namespace farside::preload
