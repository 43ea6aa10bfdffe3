// The live view of `farside top` on a terminal, with ncurses.
#pragma once
#include "base/status.h"
#include "tools/top/servers.h"
#include "tools/top/table.h"

namespace farside::top {

// Returns when the user presses q. servers: addresses of servers' metrics, which are then shown first; or "".
Status show_live(View view, const std::string& servers, double interval);

}  // namespace farside::top
