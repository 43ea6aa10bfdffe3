// The command line of `farside bench scaling`.
#pragma once
#include "command/command.h"

namespace farside::bench {

void add_scaling_command(Command& parent);

}  // namespace farside::bench
