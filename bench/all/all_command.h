// The command line of `farside bench all`.
#pragma once
#include "command/command.h"

namespace farside::bench {

void add_all_command(Command& parent);

}  // namespace farside::bench
