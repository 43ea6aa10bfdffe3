// The live view of `farside top` on a terminal, with ncurses.
#pragma once
#include "base/status.h"
#include "tools/top/table.h"

namespace farside::top {

// Returns when the user presses q.
Status show_live(View view, double interval);

}  // namespace farside::top
