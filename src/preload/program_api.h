// Connects the program's interface to Farside (include/farside/farside.h) with the pager.
#pragma once
#include "preload/guard/thread/pins.h"

namespace farside::preload {

// Fills in farside_view: from now on the inline check of hints recognizes far memory. Called once, before main().
void show_far_memory_to_hints(pager::Pager* pager);

}  // namespace farside::preload
