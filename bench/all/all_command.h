// The command line of `farside bench all`.
#pragma once
#include <CLI/CLI.hpp>

namespace farside::bench {

void add_all_command(CLI::App* parent);

}  // namespace farside::bench
